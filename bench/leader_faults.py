"""Faults of the leader of a local cluster, and their end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tools.local_cluster import LocalCluster
from tools.local_node import Node
from tools.node_networks import NodeNetworks
from tools.sync_fault import SyncFaults

FAULT_SECONDS: Final = 3.0
"""Duration of a fault of a disk or of a network, in seconds, after the puts are answered again."""
NETWORK_FAULTS: Final = ("isolate", "cut-peers", "cut-follower")
"""Faults that need a network for each node."""


class LeaderFault:
    """Applies one kind of fault to a node, and repairs the node."""

    def __init__(self, kind: str, cluster: LocalCluster, folder: Path) -> None:
        self.kind = kind
        self._cluster = cluster
        self._sync_faults = SyncFaults(cluster, folder) if kind in ("disk", "slow-disk") else None
        self._networks = NodeNetworks(cluster) if kind in NETWORK_FAULTS else None

    def begin(self, node: Node) -> None:
        """Apply the fault to a node; ``cut-follower`` cuts off a different node instead."""
        match self.kind:
            case "kill":
                node.kill()
            case "kill-all":
                for each in self._cluster.nodes:
                    each.kill()
                self._cluster.start()
            case "pause":
                node.pause()
            case "disk":
                self._disk.hang(node)
            case "slow-disk":
                self._disk.delay(node, 1000)
            case "isolate":
                self._links.cut(node)
            case "cut-peers":
                self._links.cut_peers(node)
            case "cut-follower":
                self._links.cut_peers(self._follower_of(node))
            case unknown:
                raise ValueError(f"unknown fault {unknown!r}")

    async def end(self, node: Node) -> None:
        """End the fault, so that the node recovers."""
        if self.kind == "kill":
            node.start()
        elif self.kind == "pause":
            node.resume()
        elif self._sync_faults is not None:
            await asyncio.sleep(FAULT_SECONDS)
            self._sync_faults.heal(node)
        elif self._networks is not None:
            await asyncio.sleep(FAULT_SECONDS)
            is_follower = self.kind == "cut-follower"
            self._networks.heal(self._follower_of(node) if is_follower else node)

    @property
    def _disk(self) -> SyncFaults:
        assert self._sync_faults is not None, "the fault is one of the disk"
        return self._sync_faults

    @property
    def _links(self) -> NodeNetworks:
        assert self._networks is not None, "the fault is one of the network"
        return self._networks

    def _follower_of(self, leader: Node) -> Node:
        return next(node for node in self._cluster.nodes if node is not leader)
