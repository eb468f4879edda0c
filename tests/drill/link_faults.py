"""Faults of the links between nodes: cut, slow, lossy, narrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.drill.faults import Fault, Pair, Scene
from tools.peer_links import Quality


def halves(scene: Scene) -> list[Pair]:
    """Cut a minority off from the majority, in both directions."""
    apart = {node.name for node in scene.minority()}
    return [pair for pair in scene.peer_links.pairs() if len(apart & set(pair)) == 1]


def leader_alone(scene: Scene) -> list[Pair]:
    """Cut the leader off from all others."""
    name = scene.leader().name
    return [pair for pair in scene.peer_links.pairs() if name in pair]


def one_way(scene: Scene) -> list[Pair]:
    """Deliver nothing from one node, or nothing to it."""
    name, side = scene.draw.choice(scene.cluster.nodes).name, scene.draw.randrange(2)
    return [pair for pair in scene.peer_links.pairs() if pair[side] == name]


def bridge(scene: Scene) -> list[Pair]:
    """Split the nodes into two sides that only one node between them reaches."""
    names_of_all = [node.name for node in scene.cluster.nodes]
    middle, *others = scene.draw.sample(names_of_all, k=len(names_of_all))
    left = set(others[: len(others) // 2])
    return [
        pair
        for pair in scene.peer_links.pairs()
        if middle not in pair and len(left & set(pair)) == 1
    ]


def all_pairs(scene: Scene) -> list[Pair]:
    """Cut all nodes off from each other."""
    return scene.peer_links.pairs()


def _text(pairs: Sequence[Pair]) -> str:
    return " ".join(f"{sender}>{receiver}" for sender, receiver in pairs)


@dataclass
class Partition(Fault):
    """Links that deliver nothing and close nothing."""

    choose: Callable[[Scene], list[Pair]]
    hold_seconds: tuple[float, float] = field(default=(0.3, 2.0), kw_only=True)

    def begin(self, scene: Scene) -> list[str]:
        """Cut the links."""
        pairs = self.choose(scene)
        scene.peer_links.cut(pairs)
        return [_text(pairs)]

    def end(self, scene: Scene) -> None:
        """Heal all links."""
        scene.peer_links.heal()


@dataclass
class BadLinks(Fault):
    """Links that are slow, jittery, lossy or narrow."""

    quality: Quality
    hold_seconds: tuple[float, float] = field(default=(0.5, 2.0), kw_only=True)

    def begin(self, scene: Scene) -> list[str]:
        """Change a random half of the links."""
        pairs = scene.peer_links.pairs()
        chosen = scene.draw.sample(pairs, k=max(1, len(pairs) // 2))
        scene.peer_links.change(chosen, self.quality)
        return [_text(chosen)]

    def end(self, scene: Scene) -> None:
        """Give all links their first properties."""
        scene.peer_links.heal()
