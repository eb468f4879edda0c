"""Certificates, tokens and principals of a drill with access control."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from taskraft_replication.peers.security import PeerSecurity
from tests.authority import Authority
from tests.drill.caller import OPTIONS
from tests.service.access.secured import token_of, write_principals
from tools.local_node import RETRY_QUICKLY

CLUSTER: Final = "taskraft"
GONE: Final = "n1-gone"
"""Removed member whose key is in hostile hands; the name fits ``JOINERS``."""
JOINERS: Final = "n1*"
"""Names that may add themselves: those of the nodes that join during a drill."""
STREAMS_SHARE: Final = 20
ROLES: Final = ("producer", "consumer", "reader", "admin")
BAIT: Final = "bait"
"""The tube of the principal whose token is revoked."""
OWN: Final = "own.tube"
"""The tube of the hostile principal."""


class DrillAccess:
    """The access file and the certificates of one drill; satisfies ``ClusterSecurity``.

    Args:
        folder: for the files; created.
        tubes: the tubes of the clients whose history is judged.
    """

    def __init__(self, folder: Path, tubes: tuple[str, ...]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._clients = Authority(folder, "clients")
        self._peers = Authority(folder, "peers")
        self._grants = {
            "root": [("admin", "*")],
            "worker": [(role, tube) for tube in tubes for role in ROLES],
            "stranger": [(role, "own.*") for role in ROLES],
            "revoked": [(role, BAIT) for role in ROLES],
            "demanding": [(role, "*") for role in ROLES],
        }
        self.file = folder / "access.toml"
        self.set_revoked(is_known=True)
        self.settings = {
            "TASKRAFT_CLUSTER_ID": CLUSTER,
            "TASKRAFT_ACCESS_FILE": str(self.file),
            "TASKRAFT_ADMITS": JOINERS,
            "TASKRAFT_STREAMS_SHARE_MAX": str(STREAMS_SHARE),
        }

    def set_revoked(self, *, is_known: bool) -> None:
        """Write the access file with or without the principal "revoked", at once for readers."""
        grants = {name: own for name, own in self._grants.items() if is_known or name != "revoked"}
        write_principals(self._folder / "next.toml", grants).replace(self.file)

    def settings_of(self, node: str) -> Mapping[str, str]:
        """Return the environment variables of a node with its certificates."""
        # Clients compare the address that they have called with the names in the certificate.
        server = self._clients.sign(f"server-{node}", "localhost", "127.0.0.1")
        peer = self._peers.node(node, CLUSTER)
        return {
            "TASKRAFT_TLS_CERT": str(server.certificate),
            "TASKRAFT_TLS_KEY": str(server.key),
            "TASKRAFT_PEER_TLS_CERT": str(peer.certificate),
            "TASKRAFT_PEER_TLS_KEY": str(peer.key),
            "TASKRAFT_PEER_TLS_CA": str(peer.authority),
        }

    def peer(self, node: str) -> PeerSecurity:
        """Return the certificates of a node, as its key opens the peer ports."""
        return PeerSecurity(self._peers.node(node, CLUSTER), CLUSTER, node)

    def _credentials(self, principal: str) -> grpc.ChannelCredentials:
        return grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(self._clients.certificate),
            grpc.access_token_call_credentials(token_of(principal)),
        )

    def connect(self, address: str) -> grpc.Channel:
        """Return a channel of the operator to a client port."""
        return grpc.secure_channel(address, self._credentials("root"), options=RETRY_QUICKLY)

    def channel(self, principal: str, address: str) -> grpc.aio.Channel:
        """Return a channel of a principal to a client port, with a connection of its own."""
        options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        return grpc.aio.secure_channel(address, self._credentials(principal), options=options)

    def client_options(self, principal: str) -> dict[str, str]:
        """Return the options of a client that calls as a principal."""
        return {"ca": str(self._clients.path), "token": token_of(principal)}
