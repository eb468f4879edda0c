"""Faults of processes: killed, paused, restarted, and short of descriptors or memory."""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.drill.faults import Fault, NodeFault, Scene
from tools.free_addresses import free_addresses
from tools.local_node import Node

MIB = 1 << 20


@dataclass
class Kill(NodeFault):
    """SIGKILL; the node starts again with its data."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 1.0), kw_only=True)

    def harm(self, scene: Scene) -> None:
        """Kill the nodes."""
        for node in self.hit:
            node.kill()


@dataclass
class Pause(NodeFault):
    """SIGSTOP: the node hangs and its connections stay open, longer than the election timeout."""

    hold_seconds: tuple[float, float] = field(default=(0.8, 2.0), kw_only=True)

    def harm(self, scene: Scene) -> None:
        """Stop the nodes."""
        for node in self.hit:
            node.pause()

    def heal(self, node: Node) -> None:
        """Let the node continue."""
        node.resume()


@dataclass
class Restart(Fault):
    """SIGTERM, a start with other addresses; one node after the other, as an upgrade does it."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.2), kw_only=True)
    moves: bool = True
    """Whether a node starts with other addresses."""
    _turn: int = 0

    def begin(self, scene: Scene) -> list[str]:
        """Stop the next node and start it again."""
        node = scene.cluster.nodes[self._turn % len(scene.cluster.nodes)]
        self._turn += 1
        node.stop()
        node.close()
        if self.moves:
            self._move(scene, node)
        node.start()
        return [node.name]

    @staticmethod
    def _move(scene: Scene, node: Node) -> None:
        """Give a node other addresses; the settings of all nodes follow at their next start."""
        fresh = dict(zip((node.address, node.peer_address), free_addresses(2), strict=True))
        for each in scene.cluster.nodes:
            peers = each.environment.get("TASKRAFT_PEERS", "")
            for old, new in fresh.items():
                peers = peers.replace(old, new)
            each.environment = {**each.environment, "TASKRAFT_PEERS": peers}
        node.address, node.peer_address = fresh.values()
        node.environment = {
            **node.environment,
            "TASKRAFT_LISTEN": node.address,
            "TASKRAFT_PEER_LISTEN": node.peer_address,
        }


@dataclass
class FewDescriptors(NodeFault):
    """A process that may open no further file or connection."""

    hold_seconds: tuple[float, float] = field(default=(0.5, 1.5), kw_only=True)
    _limits: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """Limits of the nodes before the fault, by name."""

    def harm(self, scene: Scene) -> None:
        """Set the limit to the present number of descriptors."""
        for node in self.hit:
            used = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
            before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (used, before[1]))
            self._limits[node.name] = before

    def heal(self, node: Node) -> None:
        """Lift the limit."""
        with suppress(ProcessLookupError):
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, self._limits[node.name])


@dataclass
class LittleMemory(NodeFault):
    """A process that may use hardly more address space than it has."""

    hold_seconds: tuple[float, float] = field(default=(0.5, 1.5), kw_only=True)
    spare_bytes: int = MIB

    def harm(self, scene: Scene) -> None:
        """Set the limit to the present size and some bytes more."""
        for node in self.hit:
            pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[0])
            size = pages * resource.getpagesize() + self.spare_bytes
            resource.prlimit(node.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

    def heal(self, node: Node) -> None:
        """Lift the limit."""
        with suppress(ProcessLookupError):
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(node.pid, resource.RLIMIT_AS, unlimited)
