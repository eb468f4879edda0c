"""Settings of certificates and access control, and the checks that they are consistent.

A node with an incomplete set of these settings does not start, because it would be less protected
than its operator believes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings

from taskraft_replication.tls.files import TlsFiles

_DNS_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9_])?")
"""Names of nodes and clusters that a certificate can contain."""


class SecuritySettings(BaseSettings):
    """Paths of PEM files and of the access file; the node reads them again when they change."""

    tls_cert: Path | None = None
    """Certificate chain of the client port: the certificate first, then intermediate certificates.
    Empty: the client port is not encrypted."""
    tls_key: Path | None = None
    """Private key of `tls_cert`. Set both or none."""
    tls_client_ca: Path | None = None
    """CA certificates for clients. Set: every client must present a certificate that one of these
    CAs signed."""
    peer_tls_cert: Path | None = None
    """Certificate of this node towards other nodes; see [security.md](security.md) for the names
    that it must contain. Empty: the peer port is not encrypted."""
    peer_tls_key: Path | None = None
    """Private key of `peer_tls_cert`."""
    peer_tls_ca: Path | None = None
    """CA certificates that sign the certificates of this cluster's nodes, and nothing else. Set all
    three `peer_tls_` settings or none."""
    access_file: Path | None = None
    """TOML file of principals and their grants. Needs `tls_cert`. Empty: access control is off."""
    metrics_token: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """Digest (`sha256:...`, printed by `taskraft token`) of the token that scrapers of `/metrics`
    must send as `Authorization: Bearer`. Empty: `/metrics` needs no token."""
    reflection: bool | None = None
    """Whether the client port serves gRPC reflection. Empty: only if `access_file` is empty."""

    @property
    def client_tls(self) -> TlsFiles | None:
        """Certificate files of the client port; None if the port is not encrypted."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)

    @property
    def peer_tls(self) -> TlsFiles | None:
        """Certificate files of the peer port; None if the port is not encrypted."""
        if self.peer_tls_cert is None or self.peer_tls_key is None:
            return None
        return TlsFiles(self.peer_tls_cert, self.peer_tls_key, self.peer_tls_ca)

    @property
    def reflects(self) -> bool:
        """Return whether the client port serves gRPC reflection."""
        return self.access_file is None if self.reflection is None else self.reflection

    def check_security(self, cluster_id: str, nodes: list[str], *, is_alone: bool) -> None:
        """Check that the security settings are consistent.

        Args:
            cluster_id: name of the cluster.
            nodes: names of its nodes, as far as the settings contain them.
            is_alone: whether this node is the only member.

        Raises:
            ValueError: they are inconsistent; the text names the setting in one line.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: set both or none")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key; set them too")
        if self.access_file is not None and self.tls_cert is None:
            raise ValueError(
                "access_file needs tls_cert and tls_key, because clients send tokens to this port"
            )
        given = [self.peer_tls_cert, self.peer_tls_key, self.peer_tls_ca]
        if any(given) and not all(given):
            raise ValueError(
                "peer_tls_cert, peer_tls_key and peer_tls_ca belong together: set all or none"
            )
        if self.tls_cert is not None and not is_alone and self.peer_tls_cert is None:
            raise ValueError(
                "tls_cert needs peer_tls_cert, peer_tls_key and peer_tls_ca in a cluster of "
                "several nodes, because nodes forward the data of clients to each other"
            )
        if self.peer_tls_cert is not None:
            for name in (cluster_id, *nodes):
                if not _DNS_NAME.fullmatch(name):
                    raise ValueError(
                        f'peer_tls_cert: no certificate can name "{name}"; use letters, digits, '
                        '".", "_" and "-", at most 63 characters'
                    )
