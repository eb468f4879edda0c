"""Parse certificates and keys, and check that they belong together."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from taskraft_replication.tls.files import TlsFiles, TlsUnusable


def first_certificate(path: Path, content: bytes) -> x509.Certificate:
    """Return the first certificate of a file; all of them must be readable.

    Raises:
        TlsUnusable: the file is malformed.
    """
    try:
        return x509.load_pem_x509_certificates(content)[0]
    except ValueError as error:
        raise TlsUnusable(f"{path} is not a PEM certificate") from error


def dns_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names of a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(x509.DNSName))


def check_key(files: TlsFiles, key: bytes, certificate: x509.Certificate) -> None:
    """Check that a key is readable and belongs to the certificate.

    Raises:
        TlsUnusable: the key is unreadable, or does not belong to the certificate.
    """
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError) as error:
        raise TlsUnusable(f"{files.key} is not a PEM key without a password") from error
    if public != certificate.public_key():
        raise TlsUnusable(f"{files.key} is not the key of {files.certificate}")
