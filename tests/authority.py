"""Create certificates in a test: a certificate authority that signs on request."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from taskraft_replication.tls.files import TlsFiles

DAY = dt.timedelta(days=1)


def _name(common):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """A CA that writes signed certificates, with their keys, into its own folder."""

    def __init__(self, folder, name="authority"):
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        certificate = self._sign(self.name, self.key.public_key(), (), DAY, is_authority=True)
        self.path = self.folder / "ca.crt"
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self.path.write_bytes(self.certificate)

    def _sign(self, subject, public_key, dns_names, valid, *, is_authority=False):
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if dns_names:
            names = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def sign(self, common, *dns_names, valid=DAY, authority=None):
        """Write a certificate and its key; return their paths, with the CA file to trust."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(common), key.public_key(), dns_names, valid)
        files = TlsFiles(
            self.folder / f"{common}.crt",
            self.folder / f"{common}.key",
            self.path if authority is None else authority,
        )
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.touch(mode=0o600)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def node(self, node, cluster="taskraft", **other):
        """Write the certificate of a node."""
        return self.sign(node, f"{node}.{cluster}.taskraft", f"{cluster}.taskraft", **other)

    def server(self, name="server", **other):
        """Write the certificate of a client port on localhost."""
        return self.sign(name, "localhost", **other)
