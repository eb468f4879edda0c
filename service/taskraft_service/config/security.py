"""The settings of a node that are about certificates and rights, and how they depend on each other.

What is half given is refused: a node that is less protected than somebody believes is worse than
one that does not start.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic_settings import BaseSettings

from taskraft_replication.tls.files import TlsFiles

_DNS_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9_])?")
"""What a node or a cluster may be called so that a certificate can name it."""


class SecuritySettings(BaseSettings):
    """Files in PEM, and the file of rights. All are read again when they change."""

    tls_cert: Path | None = None
    """Certificate of the port for clients, with those between it and its authority."""
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    """Authority of clients: with it every client must have a certificate."""
    peer_tls_cert: Path | None = None
    """Certificate of this node for the others, see ``taskraft_replication.peers.security``."""
    peer_tls_key: Path | None = None
    peer_tls_ca: Path | None = None
    """Authority of the cluster's nodes, and of nobody else."""
    access_file: Path | None = None
    """Principals and grants (``access.principals``). None disables access control."""
    reflection: bool | None = None
    """Tell callers the contract. None: unless there are rights."""

    @property
    def client_tls(self) -> TlsFiles | None:
        """The files of the port for clients; None: it is open."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)

    @property
    def peer_tls(self) -> TlsFiles | None:
        """The files of the port for peers; None: it is open."""
        if self.peer_tls_cert is None or self.peer_tls_key is None:
            return None
        return TlsFiles(self.peer_tls_cert, self.peer_tls_key, self.peer_tls_ca)

    @property
    def reflects(self) -> bool:
        """Tell whether callers may ask for the contract."""
        return self.access_file is None if self.reflection is None else self.reflection

    def check_security(self, cluster_id: str, nodes: list[str], *, is_alone: bool) -> None:
        """See that the settings agree with each other.

        Args:
            cluster_id: the cluster.
            nodes: its nodes, as far as the settings name them.
            is_alone: this node is the whole cluster.

        Raises:
            ValueError: they do not; one line names the setting.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both or none")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        if self.access_file is not None and self.tls_cert is None:
            raise ValueError("access_file needs tls_cert and tls_key: tokens travel to this port")
        given = [self.peer_tls_cert, self.peer_tls_key, self.peer_tls_ca]
        if any(given) and not all(given):
            raise ValueError(
                "peer_tls_cert, peer_tls_key and peer_tls_ca belong together: give all or none"
            )
        if self.tls_cert is not None and not is_alone and self.peer_tls_cert is None:
            raise ValueError(
                "tls_cert needs peer_tls_cert, peer_tls_key and peer_tls_ca in a cluster of "
                "several nodes: what clients send goes from node to node"
            )
        if self.peer_tls_cert is not None:
            for name in (cluster_id, *nodes):
                if not _DNS_NAME.fullmatch(name):
                    raise ValueError(f'peer_tls_cert: no certificate can name "{name}"')
