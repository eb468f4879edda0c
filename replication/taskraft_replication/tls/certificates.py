"""Parse certificates and keys, and check that they belong together."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

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


def alternative_names(der: bytes) -> tuple[str, ...]:
    """Return the alternative names of a certificate in DER: DNS names, URIs, addresses."""
    certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    kinds = x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name, x509.IPAddress
    return tuple(str(name.value) for name in names if isinstance(name, kinds))


def common_names(der: bytes) -> tuple[str, ...]:
    """Return the common names of the subject of a certificate in DER; usually one."""
    subject = x509.load_der_x509_certificate(der).subject
    return tuple(str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME))


def expiry_of(pem: bytes) -> float:
    """Return when a certificate in PEM expires, in seconds since the Unix epoch."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


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
