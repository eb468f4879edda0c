"""Faults that end with a change of the members or of the leader: joins, damaged files, clocks."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from taskraft import Client, TaskraftError
from tests.cluster.node_clocks import HOUR_MS, NodeClocks
from tests.drill.faults import Fault, Scene, await_start
from tools.local_node import Node

TIMEOUT = "20s"
SNAPSHOT_SECONDS_MAX = 10
"""Maximum time to wait for the first bytes of a snapshot."""


@dataclass
class Transfer(Fault):
    """The leader hands over its leadership."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.2), kw_only=True)

    def begin(self, scene: Scene) -> list[str]:
        """Ask for a transfer to a random follower; another fault may make it fail."""
        follower = scene.follower()
        with scene.client() as client:
            try:
                client.transfer_leadership(follower.name, timeout="5s")
            except TaskraftError as error:
                return [f"{follower.name}: {error.reason}"]
        return [follower.name]


@dataclass
class AddAndRemove(Fault):
    """A node joins, becomes a voter and is removed again, during a kill and a pause."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.2), kw_only=True)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(10))

    def begin(self, scene: Scene) -> list[str]:
        """Add a node, kill a follower, promote the node, pause the leader, remove the node."""
        node = scene.cluster.joiner(f"n{next(self._numbers)}")
        killed = scene.follower()
        node.start()
        with scene.client() as client:
            killed.kill()
            killed.start()
            await_start(scene, node)
            client.promote_member(node.name, timeout=TIMEOUT)
            paused = scene.leader()
            paused.pause()
            try:
                client.remove_member(node.name, timeout=TIMEOUT)
            finally:
                paused.resume()
        if paused is not node:
            node.wait()
        node.close()
        scene.cluster.nodes = tuple(one for one in scene.cluster.nodes if one is not node)
        return [f"{node.name} joins and leaves", f"{killed.name} killed", f"{paused.name} paused"]


@dataclass
class FlippedBit(Fault):
    """A flipped bit in a file of a follower: the node starts right, or refuses and is replaced."""

    pattern: str
    """Files below the data directory, of which one is hit."""
    hold_seconds: tuple[float, float] = field(default=(0.0, 0.1), kw_only=True)
    _hit: list[Node] = field(default_factory=list)

    def begin(self, scene: Scene) -> list[str]:
        """Kill a follower, flip a bit in its data, and start it."""
        self._hit = []
        node = scene.follower()
        node.kill()
        data = Path(node.environment["TASKRAFT_DATA_DIR"])
        paths = sorted(path for path in data.glob(self.pattern) if written_bytes(path))
        hit = []
        if paths:
            path = scene.draw.choice(paths)
            content = bytearray(path.read_bytes())
            content[scene.draw.randrange(written_bytes(path))] ^= 1 << scene.draw.randrange(8)
            path.write_bytes(content)
            hit.append(f"{node.name} {path.relative_to(data)}")
        node.start()
        self._hit = [node]
        return hit

    def end(self, scene: Scene) -> None:
        """Replace the node if it refuses to start."""
        for node in self._hit:
            await_start(scene, node)
            if not node.is_running:
                replace_member(scene, node)


@dataclass
class FlippedSnapshot(Fault):
    """A flipped bit in a snapshot that a follower receives; the follower starts or is replaced."""

    def begin(self, scene: Scene) -> list[str]:
        """Let a follower join again without data, and flip a bit in the snapshot that it gets."""
        node = scene.follower()
        node.kill()
        rejoin(scene, node)
        hit = flip_incoming(scene, node)
        await_start(scene, node)
        if node.is_running:
            promote(scene, node)
        else:
            replace_member(scene, node)
        return hit


def flip_incoming(scene: Scene, node: Node) -> list[str]:
    """Flip a bit in the next snapshot; return its position, or nothing if it was too late."""
    inbox = Path(node.environment["TASKRAFT_DATA_DIR"], "raft-0", "incoming")
    until = time.monotonic() + SNAPSHOT_SECONDS_MAX
    while node.is_running and time.monotonic() < until:
        for path in inbox.glob("*"):
            # The file is open in the node, so the bit is changed in place.
            with suppress(FileNotFoundError), path.open("r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if not size:
                    continue
                place = scene.draw.randrange(size)
                file.seek(place)
                flipped = file.read(1)[0] ^ 1 << scene.draw.randrange(8)
                file.seek(place)
                file.write(bytes([flipped]))
                return [f"{node.name} byte {place} of the first {size} bytes of a snapshot"]
    return []


def written_bytes(path: Path) -> int:
    """Return the size of a file without the zeros at its end."""
    return len(path.read_bytes().rstrip(b"\0")) if path.is_file() else 0


def replace_member(scene: Scene, node: Node) -> None:
    """Let a stopped member join again without its data, and wait until it is a voter."""
    rejoin(scene, node)
    await_start(scene, node)
    promote(scene, node)


def rejoin(scene: Scene, node: Node) -> None:
    """Remove a stopped member, wipe its directory, and let it join again under its name."""
    target = others_of(scene, node)
    shutil.rmtree(node.environment["TASKRAFT_DATA_DIR"])
    with Client(target) as client:
        client.remove_member(node.name, timeout=TIMEOUT)
    node.environment = {**node.environment, "TASKRAFT_JOIN": target}
    node.start()


def promote(scene: Scene, node: Node) -> None:
    """Make a learner a voter."""
    with Client(others_of(scene, node)) as client:
        client.promote_member(node.name, timeout=TIMEOUT)


def others_of(scene: Scene, node: Node) -> str:
    """Return the addresses of the other running nodes, as a client target."""
    return ",".join(one.address for one in scene.cluster.running() if one is not node)


FAST_PER_MILLE = 50
FAST_SLACK_SECONDS = 1.3
"""Maximum time by which a fast clock ends a lease early: the error of a follower's estimate in 20
s, and the error of a leader in the time to run of a lease."""


class FastClock(Fault):
    """Clocks of one node that run fast until the next such fault; others change the leader."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(hold_seconds=(1.0, 3.0))
        self._clocks = {node.name: NodeClocks(node) for node in scene.cluster.nodes}

    def begin(self, scene: Scene) -> list[str]:
        """Let the clocks of another node run fast, and those of the others at the right rate."""
        hit = scene.draw.choice(scene.cluster.nodes)
        for name, clocks in self._clocks.items():
            clocks.run_fast(FAST_PER_MILLE if name == hit.name else 0)
        return [f"{hit.name} {FAST_PER_MILLE} per mille fast"]


class WrongClock(Fault):
    """A wall clock that jumps, on the leader, or on a follower that leads afterwards."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(hold_seconds=(0.3, 1.0))
        self._clocks = {node.name: NodeClocks(node) for node in scene.cluster.nodes}
        self._hit: list[Node] = []

    def begin(self, scene: Scene) -> list[str]:
        """Set the clock of a node; if the node is a follower, then kill the leader."""
        is_leading = scene.draw.random() < 0.5
        node, leader = scene.follower(), scene.leader()
        if is_leading or node is leader:
            node = leader
        ahead_ms = scene.draw.choice((-24 * HOUR_MS, -30_000, -700, 700, 30_000, 24 * HOUR_MS))
        self._clocks[node.name].set_wall(ahead_ms)
        self._hit = [node]
        if node is leader:
            return [f"{node.name} {ahead_ms} ms"]
        leader.kill()
        leader.start()
        return [f"{node.name} {ahead_ms} ms", f"{leader.name} killed"]

    def end(self, scene: Scene) -> None:
        """Set the clock right again, which is a jump too."""
        for node in self._hit:
            self._clocks[node.name].set_wall(0)
