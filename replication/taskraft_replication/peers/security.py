"""Authenticate nodes by certificates that name the cluster and the node.

The certificate of node N of cluster C has the DNS names ``N.C.taskraft`` and ``C.taskraft``. The
names need not resolve, so a node can move to another address. The connecting node checks that the
certificate has the name of the expected node. The receiving node takes the sender's name from the
certificate and ignores other claims.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import grpc
from grpc import aio

from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.errors import PeerRefused
from taskraft_replication.membership.roster import find
from taskraft_replication.peers.frame_connection import FrameTls
from taskraft_replication.tls.files import CurrentTls, Tls, TlsFiles, TlsUnusable

DOMAIN: Final = "taskraft"
_NAMES: Final = "x509_subject_alternative_name"

Options = Sequence[tuple[str, str | int]]


def cluster_name(cluster_id: str) -> str:
    """Return the DNS name in the certificates of all nodes of a cluster."""
    return f"{cluster_id}.{DOMAIN}"


def node_name(node: str, cluster_id: str) -> str:
    """Return the DNS name that is only in the certificate of this node."""
    return f"{node}.{cluster_name(cluster_id)}"


class PeerSecurity:
    """Certificates of the peer port.

    Args:
        files: certificate and key of this node; the CA must sign nodes of this cluster only.
        cluster_id: this cluster.
        node: this node.

    Raises:
        TlsUnusable: the files cannot be used, or the certificate names another node.
    """

    def __init__(self, files: TlsFiles, cluster_id: str, node: str) -> None:
        self._cluster_id = cluster_id
        wanted = {node_name(node, cluster_id).lower(), cluster_name(cluster_id).lower()}

        def demand(tls: Tls) -> None:
            missing = wanted - {name.lower() for name in tls.dns_names}
            if missing:
                names = " and ".join(sorted(missing))
                raise TlsUnusable(f"{files.certificate} does not have the DNS name {names}")

        self.current = CurrentTls(files, demand)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of the port; clients need a certificate."""
        return self.current.server_credentials()

    def channel(self, address: str, node: str, options: Options) -> aio.Channel:
        """Return a channel to ``node``, whose certificate must name it; empty: to any node."""
        return aio.secure_channel(
            address,
            self.current.channel_credentials(),
            options=(*options, ("grpc.ssl_target_name_override", self._expected(node))),
        )

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context for incoming frame connections; clients need a certificate."""
        return self.current.server_context()

    def frame_tls(self, node: str) -> FrameTls:
        """Return the TLS settings for a frame connection to ``node``."""
        return FrameTls(self.current.client_context(), self._expected(node))

    def _expected(self, node: str) -> str:
        """Return the expected DNS name of ``node``; the cluster's name if ``node`` is empty."""
        return node_name(node, self._cluster_id) if node else cluster_name(self._cluster_id)

    def node_of(self, shown: Mapping[str, Iterable[bytes]]) -> str:
        """Return the name of the node that opened a connection.

        Args:
            shown: the connection's authentication, ``context.auth_context()``.

        Raises:
            PeerRefused: its certificate names no node of this cluster, or several.
        """
        return self._node_named([name.decode(errors="replace") for name in shown.get(_NAMES, ())])

    def node_behind(self, transport: asyncio.Transport) -> str:
        """Return the name of the node at the other end of a TLS connection.

        Raises:
            PeerRefused: as for ``node_of``.
        """
        certificate = transport.get_extra_info("ssl_object").getpeercert()
        names = certificate.get("subjectAltName", ())
        return self._node_named([name for kind, name in names if kind == "DNS"])

    def _node_named(self, names: Sequence[str]) -> str:
        """Return the node of this cluster that a certificate names; it must name exactly one."""
        end = "." + cluster_name(self._cluster_id).lower()
        nodes = [name[: -len(end)] for name in names if name.lower().endswith(end)]
        if len(nodes) != 1 or not nodes[0] or "*" in nodes[0]:
            raise PeerRefused(
                f"a certificate for {', '.join(names) or 'no DNS name'} names no node of cluster "
                f"{self._cluster_id!r}"
            )
        return nodes[0]


def check_node(node: str, member: MemberId, roster: Roster) -> None:
    """Check that a node is the member it claims to be.

    A member id that is not in the roster passes, because the roster may be behind.

    Raises:
        PeerRefused: the member is another node.
    """
    known = find(roster, member)
    if known is not None and known.name.lower() != node.lower():
        raise PeerRefused(
            f"the certificate names node {node!r}, but member {member} is node {known.name!r}"
        )
