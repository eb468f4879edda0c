"""Encrypt and decrypt snapshot files with age, if the library pyrage is installed.

The format is that of https://age-encryption.org, so the ``age`` command can read the files too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final

from taskraft_replication.tls.private_files import exposure_of
from taskraft_service.backup.snapshot_file import SnapshotFileInvalid

MAGIC: Final = b"age-encryption.org/v1\n"
_COMMENT: Final = "#"


class KeyUnusable(Exception):
    """A recipient or an identity cannot be used; the text says why, in one line."""


def _library() -> ModuleType:
    """Return the library.

    Raises:
        KeyUnusable: the library is not installed.
    """
    try:
        import pyrage  # noqa: PLC0415 - an optional library
    except ImportError:
        raise KeyUnusable(
            "encryption needs the library pyrage; run: pip install 'taskraft-server[age]'"
        ) from None
    return pyrage


def encrypt(source: BinaryIO, target: BinaryIO, recipients: Sequence[str]) -> None:
    """Encrypt a stream for some recipients, given as public keys (``age1…``).

    Raises:
        KeyUnusable: a recipient is not a public key.
    """
    keys = recipients_of(recipients)
    _library().encrypt_io(source, target, keys)


def recipients_of(recipients: Sequence[str]) -> Sequence[object]:
    """Return the public keys.

    Raises:
        KeyUnusable: a recipient is not a public key, or the library is not installed.
    """
    library = _library()
    keys = []
    for recipient in recipients:
        try:
            keys.append(library.x25519.Recipient.from_str(recipient))
        except library.RecipientError as error:
            raise KeyUnusable(f"{recipient!r} is not an age public key: {error}") from error
    return keys


def decrypt(source: BinaryIO, target: BinaryIO, identity: Path) -> None:
    """Decrypt a stream with the private keys in a file, one in each line (``AGE-SECRET-KEY-…``).

    Raises:
        KeyUnusable: the file cannot be read, has no private key, a line is invalid, or other users
            can read the file.
        SnapshotFileInvalid: the stream cannot be decrypted with these keys.
    """
    library = _library()
    try:
        if exposure := exposure_of(identity):
            raise KeyUnusable(exposure)
        lines = [line.strip() for line in identity.read_text("utf-8").splitlines()]
    except UnicodeDecodeError:
        raise KeyUnusable(f"{identity}: not a file of age private keys: not text") from None
    except OSError as error:
        raise KeyUnusable(f"{identity}: cannot be read: {error.strerror}") from error
    try:
        keys = [
            library.x25519.Identity.from_str(line)
            for line in lines
            if line and not line.startswith(_COMMENT)
        ]
    except library.IdentityError as error:
        raise KeyUnusable(f"{identity}: not an age private key: {error}") from error
    if not keys:
        raise KeyUnusable(f"{identity}: the file has no private key")
    try:
        library.decrypt_io(source, target, keys)
    except library.DecryptError as error:
        raise SnapshotFileInvalid(f"the file cannot be decrypted: {error}") from error
