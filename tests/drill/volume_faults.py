"""Faults of whole data directories: several damaged copies, and swapped and cloned volumes."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from taskraft_replication.core.types import LogIndex
from taskraft_replication.storage.damaged_log import DamagedLog
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Metadata
from taskraft_replication.storage.record import HEADER_BYTES
from tests.drill.faults import Fault, Scene, start_stopped
from tests.drill.state_faults import DETECTED, REPAIR_MS_MAX, data_of, is_whole
from tools.local_node import Node, NodeFailed

DAMAGED_MAX = 3
"""Maximum number of damaged entries in one log."""
NEWEST_ENTRIES = 300
"""The damage is among so many of the newest entries, which no state has yet."""
NEEDED_FILES = ("state/*/MANIFEST-*", "state/*/CURRENT", "state/current")
"""Files without which a node cannot open its state."""
REFUSED_MS_MAX = 30_000
EXIT_REFUSED = 1


@dataclass
class DamagedCopies(Fault):
    """Kills all nodes, and damages the log, the state or both of several nodes.

    Each log is damaged in other places than the other logs, so each entry is whole on one node.
    The nodes must return by themselves.
    """

    copies: int
    """Number of nodes with damage."""
    parts: tuple[str, ...]
    """"log", "state" or both."""
    hold_seconds: tuple[float, float] = field(default=(0.0, 0.1), kw_only=True)
    stops_all: bool = field(default=True, kw_only=True)
    _damaged: list[Node] = field(default_factory=list, init=False)
    _said: list[int] = field(default_factory=list, init=False)
    """Length of the output of each damaged node before the damage."""

    def begin(self, scene: Scene) -> list[str]:
        """Kill the nodes, damage some of them, and start all."""
        nodes = scene.cluster.nodes
        for node in nodes:
            node.kill()
        self._damaged = scene.draw.sample(nodes, self.copies)
        self._said = [len(node.log.read_text()) for node in self._damaged]
        hit = [
            *(self._damage_logs(scene) if "log" in self.parts else ()),
            *(self._damage_states(scene) if "state" in self.parts else ()),
        ]
        for node in nodes:
            node.start()
        return hit

    def _damage_logs(self, scene: Scene) -> list[str]:
        last = min(log_of(node).last for node in self._damaged)
        # The last entry of each log stays whole, so that the length of the log is known.
        spots = list(range(max(2, last - NEWEST_ENTRIES), last))
        scene.draw.shuffle(spots)
        hit: list[str] = []
        for node in self._damaged:
            count = scene.draw.randint(1, DAMAGED_MAX)
            places, spots = spots[:count], spots[count:]
            done = [
                index
                for index in places
                if damage_entry(node, index, scene.draw.randrange(HEADER_BYTES))
            ]
            hit.append(f"entries {sorted(done)} of {node.name}")
        return hit

    def _damage_states(self, scene: Scene) -> list[str]:
        hit: list[str] = []
        for node in self._damaged:
            for path in sorted(data_of(node).glob(scene.draw.choice(NEEDED_FILES))):
                path.unlink()
                hit.append(f"{path.name} of {node.name} removed")
        return hit

    def end(self, scene: Scene) -> None:
        """Wait until all nodes serve again, without hands.

        Raises:
            NodeFailed: a node exited, no node has completed its log, or a node has not rebuilt its
                state.
        """
        nodes = scene.cluster.nodes
        began = time.monotonic()

        def is_over() -> bool:
            stopped = [node for node in nodes if not node.is_running]
            if stopped:
                raise NodeFailed(f"{stopped[0].name} exited:{stopped[0].tail()}")
            return all(is_whole(scene, node) for node in nodes)

        scene.cluster.wait_until(is_over, "all nodes serve with whole data", REPAIR_MS_MAX)
        scene.repair_seconds.append(time.monotonic() - began)
        pairs = zip(self._damaged, self._said, strict=True)
        said = [node.log.read_text()[begin:] for node, begin in pairs]
        if "log" in self.parts and not any("the log is complete again" in each for each in said):
            raise NodeFailed("no node has completed its log")
        for node, text in zip(self._damaged, said, strict=True):
            if "state" in self.parts and not DETECTED.search(text):
                raise NodeFailed(f"{node.name} has not rebuilt its damaged state{node.tail()}")


@dataclass
class SwappedVolumes(Fault):
    """Two nodes start with each other's directory, refuse, and start with their own again."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.1), kw_only=True)
    stops_all: bool = field(default=True, kw_only=True)
    _nodes: list[Node] = field(default_factory=list, init=False)

    def begin(self, scene: Scene) -> list[str]:
        """Stop two nodes, swap their directories, and start them.

        Raises:
            NodeFailed: a node serves with the directory of another one.
        """
        self._nodes = scene.draw.sample(scene.cluster.nodes, 2)
        for node in self._nodes:
            node.stop()
        self._swap()
        for node in self._nodes:
            expect_refusal(node)
        return [f"directories of {' and '.join(node.name for node in self._nodes)} swapped"]

    def end(self, scene: Scene) -> None:
        """Swap the directories back, and start the nodes."""
        self._swap()
        start_stopped(self._nodes)

    def _swap(self) -> None:
        one, other = (data_of(node) for node in self._nodes)
        between = one.with_name("between")
        for old, new in ((one, between), (other, one), (between, other)):
            old.rename(new)


@dataclass
class ClonedVolume(Fault):
    """A node starts with a copy of the directory of a running node, and refuses."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.1), kw_only=True)
    _node: Node = field(init=False)

    def begin(self, scene: Scene) -> list[str]:
        """Copy the directory of one node, and start another node with the copy.

        Raises:
            NodeFailed: the node serves with the copy.
        """
        self._node, source = scene.draw.sample(scene.cluster.nodes, 2)
        own = data_of(self._node)
        source.pause()  # as a snapshot of the volume, which shows one moment
        try:
            shutil.copytree(data_of(source), own.with_name("clone"))
        finally:
            source.resume()
        self._node.stop()
        own.rename(own.with_name("own"))
        own.with_name("clone").rename(own)
        expect_refusal(self._node)
        return [f"directory of {source.name} cloned for {self._node.name}"]

    def end(self, scene: Scene) -> None:
        """Give the node its own directory back, and start the node."""
        own = data_of(self._node)
        shutil.rmtree(own)
        own.with_name("own").rename(own)
        start_stopped([self._node])


def expect_refusal(node: Node) -> None:
    """Start a node with the directory of another one, which it must refuse.

    Raises:
        NodeFailed: the node has not refused the directory.
    """
    node.start()
    status = node.wait(REFUSED_MS_MAX)
    if status != EXIT_REFUSED:
        raise NodeFailed(f"{node.name} has not refused another directory: {status}")


def log_of(node: Node) -> DamagedLog:
    """Return the log of a stopped node, which may be damaged."""
    return log_in(data_of(node))


def log_in(data: Path) -> DamagedLog:
    """Return the log in a data directory, which may be damaged."""
    fs = DiskFileSystem(data)
    return DamagedLog(fs, Metadata(fs, "raft-0"))


def damage_entry(node: Node, index: int, place_in_record: int = 0) -> bool:
    """Flip a bit in the record of an entry of a stopped node; return False if it has none."""
    return damage_record(data_of(node), index, place_in_record)


def damage_record(data: Path, index: int, place_in_record: int = 0) -> bool:
    """Flip a bit in the record of an entry in a data directory; return False if it has none."""
    place = log_in(data)._places.get(LogIndex(index))
    if place is None:
        return False
    with (data / "raft-0" / "log" / place.segment).open("r+b", buffering=0) as file:
        at = place.offset + place_in_record
        file.seek(at)
        flipped = file.read(1)[0] ^ 0x10
        file.seek(at)
        file.write(bytes((flipped,)))
    return True
