"""Let nodes know each other by certificates that name the cluster and the node.

The certificate of node N of cluster C has the DNS names ``N.C.taskraft`` and ``C.taskraft``. They
are no addresses and need not resolve: a node may move, its name stays. Who calls checks that the
one who answers has the name of the node it wants; who is called learns from the certificate which
node it is, and believes nobody who says to be another.
"""

from __future__ import annotations

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
    """Return the name that the certificates of all nodes of a cluster have."""
    return f"{cluster_id}.{DOMAIN}"


def node_name(node: str, cluster_id: str) -> str:
    """Return the name that only the certificate of this node has."""
    return f"{node}.{cluster_name(cluster_id)}"


class PeerSecurity:
    """The certificates of the port for peers.

    Args:
        files: of this node; the authority is that of the cluster's nodes and of nobody else.
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
        """Return the credentials of the port; nobody without a certificate gets in."""
        return self.current.server_credentials()

    def channel(self, address: str, node: str, options: Options) -> aio.Channel:
        """Return a channel to a node, whose certificate must name it; empty: to any node."""
        return aio.secure_channel(
            address,
            self.current.channel_credentials(),
            options=(*options, ("grpc.ssl_target_name_override", self._expected(node))),
        )

    def server_context(self) -> ssl.SSLContext:
        """Return how a lane is encrypted that a peer opens: its ticket says who the peer is."""
        return self.current.server_context()

    def frame_tls(self, node: str) -> FrameTls:
        """Return how a lane to a node is encrypted, whose certificate must name it."""
        return FrameTls(self.current.client_context(), self._expected(node))

    def _expected(self, node: str) -> str:
        """Return the name that the certificate of a node has; that all have, for an empty one."""
        return node_name(node, self._cluster_id) if node else cluster_name(self._cluster_id)

    def node_of(self, shown: Mapping[str, Iterable[bytes]]) -> str:
        """Return which node of this cluster has made a connection.

        Args:
            shown: the connection's authentication, ``context.auth_context()``.

        Raises:
            PeerRefused: its certificate names no node of this cluster, or several.
        """
        end = "." + cluster_name(self._cluster_id).lower()
        names = [name.decode(errors="replace") for name in shown.get(_NAMES, ())]
        nodes = [name[: -len(end)] for name in names if name.lower().endswith(end)]
        if len(nodes) != 1 or not nodes[0] or "*" in nodes[0]:
            raise PeerRefused(
                f"a certificate for {', '.join(names) or 'nobody'} names no node of cluster "
                f"{self._cluster_id!r}"
            )
        return nodes[0]


def check_node(node: str, member: MemberId, roster: Roster) -> None:
    """Make sure that a node speaks for the member that it is.

    A number that was not given yet, as far as this member knows, proves nothing.

    Raises:
        PeerRefused: the member is another node.
    """
    known = find(roster, member)
    if known is not None and known.name.lower() != node.lower():
        raise PeerRefused(
            f"the certificate of {node!r} does not speak for member {member}, {known.name!r}"
        )
