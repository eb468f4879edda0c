"""Prove who the client is, and know whom it talks to: certificates and tokens.

What is not given is looked for in the environment: TASKRAFT_CA, TASKRAFT_CERT, TASKRAFT_KEY,
TASKRAFT_TOKEN_FILE, TASKRAFT_TOKEN. Where none of them is there either, connections are plain.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX: Final = "TASKRAFT_"


class AccessOptions(TypedDict, total=False):
    """Certificates and token of a client."""

    ca: str | Path
    """Authorities that sign the nodes' certificates, in PEM; those of the system by default."""
    cert: str | Path
    """The client's own certificate, in PEM, with what is between it and its authority."""
    key: str | Path
    """The key of the client's certificate."""
    token: str
    """The token itself. It never travels over a plain connection."""
    token_file: str | Path
    """A file with nothing but the token. It is read again when it changes."""


class CredentialsUnusable(ValueError):
    """What was given does not belong together, or cannot be read; one line says what."""


class TokenFile:
    """A token that may be replaced while the process runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (0, 0)
        self._token = ""

    def __call__(self) -> str:
        """Return the token as it is now.

        Raises:
            OSError: The file cannot be read.
        """
        found = self._path.stat()
        seen = (found.st_ino, found.st_mtime_ns)
        if seen != self._seen:
            self._token = self._path.read_text().strip()
            self._seen = seen
        return self._token


class _Bearer(grpc.AuthMetadataPlugin):
    """Put the token into each call."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def __call__(
        self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        del context
        try:
            metadata = (("authorization", f"Bearer {self._token()}"),)
        except OSError as error:
            callback((), error)
        else:
            callback(metadata, None)


def channel_credentials(**given: Unpack[AccessOptions]) -> grpc.ChannelCredentials | None:
    """Return credentials for channels to the cluster; None where nothing asks for any.

    Raises:
        CredentialsUnusable: A key without its certificate, two tokens, or a file that is not there.
    """
    names = ("ca", "cert", "key", "token", "token_file")
    options = {name: given.get(name) or os.environ.get(PREFIX + name.upper()) for name in names}
    if given.get("token") or given.get("token_file"):
        # What the environment says of the other kind of token is not meant.
        options |= {name: given.get(name) for name in ("token", "token_file")}
    if not any(options.values()):
        return None
    if bool(options["cert"]) != bool(options["key"]):
        raise CredentialsUnusable("cert and key belong together: give both or none")
    if options["token"] and options["token_file"]:
        raise CredentialsUnusable("token and token_file exclude each other")
    credentials = grpc.ssl_channel_credentials(
        _read(options["ca"], "CERTIFICATE"),
        _read(options["key"], "PRIVATE KEY"),
        _read(options["cert"], "CERTIFICATE"),
    )
    token = _token(options["token"], options["token_file"])
    if token is None:
        return credentials
    bearer = grpc.metadata_call_credentials(_Bearer(token))
    return grpc.composite_channel_credentials(credentials, bearer)


def _read(path: object, kind: str) -> bytes | None:
    """Return the content of a PEM file, None if there is no name of one."""
    if not path:
        return None
    try:
        content = Path(str(path)).read_bytes()
    except OSError as error:
        raise CredentialsUnusable(f"{path}: {error.strerror}") from error
    if f"{kind}-----".encode() not in content:
        raise CredentialsUnusable(f"{path}: no {kind.lower()} in it, in PEM")
    return content


def _token(token: object, path: object) -> Callable[[], str] | None:
    """Return what gives the token of each call; None: there is none."""
    if token:
        return lambda: str(token)
    if not path:
        return None
    file = TokenFile(Path(str(path)))
    try:
        if not file():
            raise CredentialsUnusable(f"{path}: no token in it")
    except OSError as error:
        raise CredentialsUnusable(f"{path}: {error.strerror}") from error
    return file
