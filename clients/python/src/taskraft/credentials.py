"""Build gRPC credentials from certificates and tokens.

Options that are not given are read from the environment: TASKRAFT_CA, TASKRAFT_CERT, TASKRAFT_KEY,
TASKRAFT_TOKEN_FILE, TASKRAFT_TOKEN. If none of them is set either, connections use neither TLS nor
a token.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack
from urllib.parse import quote

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "TASKRAFT_"
NAMES: Final = ("ca", "cert", "key", "token", "token_file")
"""Names of the options; also the names of the variables, after the prefix."""
PERSON_CHARACTERS_MAX: Final = 128


class AccessOptions(TypedDict, total=False):
    """Certificates and token of a client."""

    ca: str | Path
    """PEM file with the CAs of the nodes' certificates; default: the system's CAs."""
    cert: str | Path
    """PEM file with the client's certificate and its intermediate certificates."""
    key: str | Path
    """PEM file with the private key of the client's certificate."""
    token: str
    """The token. The client never sends a token over a connection without TLS."""
    token_file: str | Path
    """File that contains only the token. The client reads it again when it changes."""
    person: str
    """Person who uses a program that calls with credentials of its own, for the audit: at most 128
    printable characters. Nodes believe the name only from a principal with ``speaks_for``."""


class CredentialsUnusable(ValueError):
    """The options contradict each other, or a file cannot be used; see the message."""


class TokenFile:
    """Reads a token from a file that may be replaced while the process runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (0, 0)
        self._token = ""

    def __call__(self) -> str:
        """Return the current token.

        Raises:
            OSError: the file cannot be read.
        """
        found = self._path.stat()
        seen = (found.st_ino, found.st_mtime_ns)
        if seen != self._seen:
            self._token = self._path.read_text().strip()
            self._seen = seen
        return self._token


class _CallMetadata(grpc.AuthMetadataPlugin):
    """Adds the token and the person to each call."""

    def __init__(self, token: Callable[[], str] | None, person: str) -> None:
        self._token = token
        self._person = (("x-taskraft-person", quote(person)),) if person else ()

    def __call__(
        self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        del context
        try:
            bearer = (("authorization", f"Bearer {self._token()}"),) if self._token else ()
        except OSError as error:
            callback((), error)
        else:
            callback((*bearer, *self._person), None)


def channel_credentials(**given: Unpack[AccessOptions]) -> grpc.ChannelCredentials | None:
    """Return credentials for channels to the cluster; None if no option is set.

    Raises:
        CredentialsUnusable: cert without key, key without cert, two tokens, or an unusable file.
    """
    options = {name: given.get(name) or os.environ.get(PREFIX + name.upper()) for name in NAMES}
    if given.get("token") or given.get("token_file"):
        # A given token overrides both token variables of the environment.
        options |= {name: given.get(name) for name in ("token", "token_file")}
    return credentials_of({**options, "person": given.get("person")})


def credentials_of(options: Mapping[str, object]) -> grpc.ChannelCredentials | None:
    """Return credentials of `AccessOptions` without the environment; None if no option is set.

    Raises:
        CredentialsUnusable: see `channel_credentials`.
    """
    person = _checked_person(options.get("person"))
    options = {name: options.get(name) for name in NAMES}
    if not any(options.values()):
        if person:
            raise CredentialsUnusable(
                "person needs a token or a certificate: nodes without access "
                "control record no persons"
            )
        return None
    if bool(options["cert"]) != bool(options["key"]):
        raise CredentialsUnusable("cert and key must be set together: set both or neither")
    if options["token"] and options["token_file"]:
        raise CredentialsUnusable("token and token_file are both set: set only one of them")
    authority = _read(options["ca"], "CERTIFICATE")
    key, chain = _read(options["key"], "PRIVATE KEY"), _read(options["cert"], "CERTIFICATE")
    _check_certificates(options["ca"], options["cert"], options["key"])
    credentials = grpc.ssl_channel_credentials(authority, key, chain)
    token = _token(options["token"], options["token_file"])
    if token is None and not person:
        return credentials
    metadata = grpc.metadata_call_credentials(_CallMetadata(token, person))
    return grpc.composite_channel_credentials(credentials, metadata)


def _checked_person(person: object) -> str:
    if not person:
        return ""
    text = str(person)
    if not text.isprintable() or len(text) > PERSON_CHARACTERS_MAX:
        raise CredentialsUnusable(
            f"person must have at most {PERSON_CHARACTERS_MAX} printable characters"
        )
    return text


def _read(path: object, kind: str) -> bytes | None:
    """Return the content of a PEM file; None if `path` is empty."""
    if not path:
        return None
    try:
        content = Path(str(path)).read_bytes()
    except OSError as error:
        raise CredentialsUnusable(f"{path}: {error.strerror}") from error
    if f"{kind}-----".encode() not in content:
        raise CredentialsUnusable(f"{path}: the file contains no {kind.lower()} in PEM format")
    return content


def _check_certificates(ca: object, cert: object, key: object) -> None:
    """Check PEM files that can be read: gRPC would write its reason to stderr at each connection.

    Raises:
        CredentialsUnusable: a CA is malformed, or certificate and key cannot be used together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")  # the server judges the strength of a key
    if ca:
        try:
            context.load_verify_locations(str(ca))
        except ssl.SSLError as error:
            raise CredentialsUnusable(f"{ca}: a certificate in the file is malformed") from error
    if cert:
        try:
            context.load_cert_chain(str(cert), str(key), password="")
        except ssl.SSLError as error:
            is_pair = "MISMATCH" not in str(error.reason)
            what = "one of the files is malformed or encrypted" if is_pair else "they do not match"
            raise CredentialsUnusable(
                f"certificate {cert} and key {key} cannot be used: {what}"
            ) from error


def _token(token: object, path: object) -> Callable[[], str] | None:
    """Return a function that returns the token of each call; None if there is no token."""
    if token:
        return lambda: str(token)
    if not path:
        return None
    file = TokenFile(Path(str(path)))
    try:
        if not file():
            raise CredentialsUnusable(f"{path}: the file contains no token")
    except OSError as error:
        raise CredentialsUnusable(f"{path}: {error.strerror}") from error
    return file
