"""The interface of faults, and the choice of the nodes that they hit.

The seed of the drill decides which nodes a fault hits. ``begin`` and ``end`` run in a thread,
because they may wait for a process.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from taskraft import Client
from taskraft.v1 import cluster_service_pb2
from tests.drill.drill_access import DrillAccess
from tools.local_cluster import LocalCluster
from tools.local_node import Node
from tools.peer_links import Quality

Phase = cluster_service_pb2.NodeState


Pair = tuple[str, str]
"""Names of two nodes: sender and receiver."""


class Links(Protocol):
    """The links between nodes: TCP proxies, or a network of packets."""

    def pairs(self) -> list[Pair]:
        """Return all pairs of nodes."""

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Deliver nothing over these links."""

    def change(self, pairs: Iterable[Pair], quality: Quality) -> None:
        """Give these links other properties."""

    def heal(self) -> None:
        """Let all links deliver again, with their first properties."""


@dataclass
class Scene:
    """The cluster, its links and the source of random numbers that a fault uses."""

    cluster: LocalCluster
    draw: random.Random
    folder: Path
    links: Links | None = None
    access: DrillAccess | None = None
    """Certificates and principals; None: the nodes trust every caller."""
    repair_seconds: list[float] = field(default_factory=list)
    """Times from the detection of damage until the node served again."""
    stack: ExitStack = field(default_factory=ExitStack)
    """Undoes the preparations of the drill at its end."""

    def client(self) -> Client:
        """Return a client of an operator."""
        options = {} if self.access is None else self.access.client_options("root")
        return Client(self.cluster.target, **options)

    def leader(self) -> Node:
        """Return the node that leads, or any running node while none does."""
        return self.cluster.leader() or self.draw.choice(list(self.cluster.running()))

    def follower(self) -> Node:
        """Return a running node that does not lead."""
        leader = self.leader()
        return self.draw.choice([node for node in self.cluster.running() if node is not leader])

    def minority(self) -> list[Node]:
        """Return less than half of the nodes."""
        nodes = self.cluster.nodes
        return self.draw.sample(nodes, self.draw.randint(1, (len(nodes) - 1) // 2))

    @property
    def peer_links(self) -> Links:
        """The links between the nodes."""
        assert self.links is not None, "this drill carries no links"
        return self.links


@dataclass(kw_only=True)
class Fault(ABC):
    """One fault of one kind at a time."""

    hold_seconds: tuple[float, float] = (0.0, 0.5)
    """Least and greatest time from ``begin`` to ``end``."""
    stops_all: bool = False
    """Whether no majority can answer until ``end`` and the time to recover have passed."""

    @abstractmethod
    def begin(self, scene: Scene) -> list[str]:
        """Inject the fault; return what it hit, one text for each single fault."""

    def end(self, scene: Scene) -> None:  # noqa: B027 - nothing to heal by default
        """Heal the fault; a fault that has ended when ``begin`` returns needs no healing."""


def leader_of(scene: Scene) -> list[Node]:
    """Choose the leader."""
    return [scene.leader()]


def follower_of(scene: Scene) -> list[Node]:
    """Choose a follower."""
    return [scene.follower()]


def all_of(scene: Scene) -> list[Node]:
    """Choose all running nodes."""
    return list(scene.cluster.running())


Choice = Callable[[Scene], list[Node]]


def settled(node: Node) -> bool:
    """Return whether a node that was started has exited or follows."""
    if not node.is_running:
        return True
    state = node.state()
    return state is not None and state.state.phase in (Phase.RUNNING, Phase.WAITING)


def await_start(scene: Scene, node: Node) -> None:
    """Wait until a node that was started has exited or follows."""
    scene.cluster.wait_until(lambda: settled(node), f"{node.name} has started or exited")


def start_stopped(nodes: Iterable[Node]) -> None:
    """Start the nodes that do not run."""
    for node in nodes:
        if not node.is_running:
            node.start()


@dataclass
class NodeFault(Fault):
    """A fault that harms each of some nodes in the same way."""

    choose: Choice
    hit: list[Node] = field(default_factory=list, init=False)
    """The nodes that the last ``begin`` chose."""

    def begin(self, scene: Scene) -> list[str]:
        """Harm the nodes of the choice."""
        self.hit = self.choose(scene)
        self.harm(scene)
        return [node.name for node in self.hit]

    @abstractmethod
    def harm(self, scene: Scene) -> None:
        """Harm the nodes in ``hit``."""

    def heal(self, node: Node) -> None:
        """End the harm of a node; a node that has stopped is started afterwards."""

    def end(self, scene: Scene) -> None:
        """Heal the nodes and start those that have stopped."""
        for node in self.hit:
            self.heal(node)
        start_stopped(self.hit)
