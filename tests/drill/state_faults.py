"""Damage to the state of a node, which the node repairs by itself while clients work."""

from __future__ import annotations

import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.drill.disk_faults import SMALL_FILES
from tests.drill.faults import Fault, Scene, settled
from tests.drill.member_faults import SNAPSHOT_SECONDS_MAX, flip_incoming
from tools.local_node import Node, NodeFailed

SCRUBBED = {**SMALL_FILES, "TASKRAFT_SCRUB_PERIOD_MS": "1000"}
"""Settings with which a node finds damage of its files within seconds."""
REPAIR_MS_MAX = 60_000
"""Maximum time from damage until the node serves again."""
ZEROED_BYTES = 4096
LAG_MAX = 200
"""Entries by which a node that serves may lag behind while clients work."""
AGE_ENTRIES = (1, 600)
"""Number of entries by which a copy is older; the log keeps fewer or more entries."""
DETECTED = re.compile(r"the state is damaged and is rebuilt|the state is lost; fetching")
_PASSES = re.compile(r"^taskraft_scrub_passes_total (\S+)$", re.MULTILINE)

Harm = Callable[[Path, Random], None]
"""Changes a file that has content."""


def flip(path: Path, draw: Random) -> None:
    """Flip a bit in place."""
    with path.open("r+b", buffering=0) as file:
        place = draw.randrange(path.stat().st_size)
        file.seek(place)
        flipped = file.read(1)[0] ^ 1 << draw.randrange(8)
        file.seek(place)
        file.write(bytes((flipped,)))


def cut(path: Path, draw: Random) -> None:
    """Remove the end of a file."""
    os.truncate(path, draw.randrange(path.stat().st_size))


def zero(path: Path, draw: Random) -> None:
    """Write zeros over a part of a file, in place."""
    size = path.stat().st_size
    with path.open("r+b", buffering=0) as file:
        place = draw.randrange(size)
        file.seek(place)
        file.write(bytes(min(ZEROED_BYTES, size - place)))


def remove(path: Path, _draw: Random) -> None:
    """Delete a file."""
    path.unlink()


FILES = (
    "state/*/*.sst",  # tasks, payloads, sessions and the change feed
    "state/*/MANIFEST-*",
    "state/*/CURRENT",
    "state/*/OPTIONS-*",
    "state/*/IDENTITY",
    "state/current",
    "scrub",
)
HARMS: tuple[Harm, ...] = (flip, cut, zero, remove)


@dataclass
class StateFault(Fault):
    """Damage after which a node must serve again, with its identity and without an operator."""

    hold_seconds: tuple[float, float] = field(default=(0.0, 0.1), kw_only=True)
    _node: Node | None = field(default=None, init=False)
    _said: int = field(default=0, init=False)
    _identity: str = field(default="", init=False)
    hit: str = field(default="", init=False)
    """What the last ``begin`` did."""

    def restart(
        self, scene: Scene, change: Callable[[Path], str] | None, node: Node | None = None
    ) -> Node:
        """Stop a node (None: any), change its data, and start it; return the node.

        A start also forgets earlier repairs: a process that finds damage twice exits.
        """
        node = self._node = node or scene.draw.choice(list(scene.cluster.running()))
        self._identity = identity_of(node)
        node.stop()
        self._said = len(node.log.read_text())
        self.hit = change(data_of(node)) if change is not None else ""
        node.start()
        return node

    def said(self) -> str:
        """Return the output of the node since the fault."""
        assert self._node is not None
        return self._node.log.read_text()[self._said :]

    def end(self, scene: Scene) -> None:
        """Wait until the node serves again; record the time from the detection until then.

        Raises:
            NodeFailed: the node exited, or was repaired too late or under another identity.
        """
        node = self._node
        assert node is not None
        began = time.monotonic()
        detected = began if DETECTED.search(self.said()) else None

        def is_over() -> bool:
            nonlocal detected
            if detected is None and DETECTED.search(self.said()):
                detected = time.monotonic()
            if not node.is_running:
                raise NodeFailed(f"{node.name} exited after {self.hit}:{node.tail()}")
            return self.is_over(scene, node)

        scene.cluster.wait_until(is_over, f"{node.name} serves after {self.hit}", REPAIR_MS_MAX)
        if identity_of(node) != self._identity:
            raise NodeFailed(f"{node.name} has another identity after {self.hit}")
        if DETECTED.search(self.said()):
            scene.repair_seconds.append(time.monotonic() - (detected or began))

    def is_over(self, scene: Scene, node: Node) -> bool:
        """Return whether the node serves and has caught up."""
        return is_whole(scene, node)


@dataclass
class DamagedState(StateFault):
    """One damaged file, while the node is stopped, or while the node runs.

    The faults go through all files and harms, one pair each time.
    """

    _turn: int = field(default=0, init=False)
    _passes_before: float | None = field(default=None, init=False)

    def begin(self, scene: Scene) -> list[str]:
        """Damage a file of a node that is stopped, or of a node that runs."""
        place, turn = divmod(self._turn, len(FILES))
        pattern = FILES[turn]
        harm = HARMS[(place + turn) % len(HARMS)]
        is_live = scene.draw.random() < 0.5
        self._turn += 1

        def change(data: Path) -> str:
            paths = sorted(path for path in data.glob(pattern) if path.stat().st_size)
            if not paths:
                return ""
            path = scene.draw.choice(paths)
            with suppress(FileNotFoundError):  # RocksDB has just deleted the table
                harm(path, scene.draw)
            return f"{harm.__name__} {path.relative_to(data)}"

        self._passes_before = None
        if not is_live:
            node = self.restart(scene, change)
        else:
            node = self.restart(scene, None)
            scene.cluster.wait_until(lambda: is_whole(scene, node), f"{node.name} serves")
            self.hit = change(data_of(node))
            self._passes_before = passes_of(node)
        when = "while it runs" if is_live else "before its start"
        return [f"{node.name} {self.hit} {when}"] if self.hit else []

    def is_over(self, scene: Scene, node: Node) -> bool:
        """Return whether the node serves after a repair, or after scrubs that found no damage."""
        if not is_whole(scene, node):
            return False
        if self._passes_before is None or DETECTED.search(self.said()):
            return True
        passes = passes_of(node)
        # The pass that runs meanwhile may have read the file before.
        return passes is not None and passes > self._passes_before + 1


@dataclass
class OldState(StateFault):
    """The state of a node is replaced by an older copy."""

    def begin(self, scene: Scene) -> list[str]:
        """Copy the state of a node that is stopped, let the node work, and bring the copy back."""
        copy = scene.folder / "copy"

        def keep(data: Path) -> str:
            shutil.copytree(data / "state", copy)
            return ""

        def bring_back(data: Path) -> str:
            shutil.rmtree(data / "state")
            copy.rename(data / "state")
            return "old copy of the state"

        node = self.restart(scene, keep)
        scene.cluster.wait_until(lambda: is_whole(scene, node), f"{node.name} serves")
        later = applied_of(node) + scene.draw.randint(*AGE_ENTRIES)
        scene.cluster.wait_until(lambda: applied_of(node) > later, f"{node.name} applies entries")
        self.restart(scene, bring_back, node)
        return [f"{node.name} {self.hit}"]


@dataclass
class LostState(StateFault):
    """The state of a node is lost."""

    def begin(self, scene: Scene) -> list[str]:
        """Remove the state of a node that is stopped."""
        node = self.restart(scene, _remove_state)
        return [f"{node.name} {self.hit}"]


@dataclass
class FlippedRepair(StateFault):
    """A flipped bit in the state that a peer sends for a repair."""

    def begin(self, scene: Scene) -> list[str]:
        """Remove the state of a node, and flip a bit in the state that the node receives."""
        node = self.restart(scene, _remove_state)
        return [f"{node.name} {self.hit}", *flip_incoming(scene, node)]


@dataclass
class DamagedSender(StateFault):
    """A member needs the state of the others while the state of one of them is damaged."""

    _sender: Node | None = field(default=None, init=False)
    _passes_before: float | None = field(default=None, init=False)

    def begin(self, scene: Scene) -> list[str]:
        """Flip a bit in a table of a node, then remove the state of another node."""
        sender = self._sender = self.restart(scene, None)
        scene.cluster.wait_until(lambda: is_whole(scene, sender), f"{sender.name} serves")
        tables = list(data_of(sender).glob("state/*/*.sst"))
        if tables:
            with suppress(FileNotFoundError):  # RocksDB has just deleted the table
                flip(max(tables, key=lambda table: table.stat().st_size), scene.draw)
        self._passes_before = passes_of(sender)
        others = [node for node in scene.cluster.running() if node is not sender]
        node = self.restart(scene, _remove_state, scene.draw.choice(others))
        return [f"{node.name} {self.hit} while a table of {sender.name} is damaged"]

    def is_over(self, scene: Scene, node: Node) -> bool:
        """Return whether both nodes serve, and the sender has read its tables."""
        sender = self._sender
        assert sender is not None
        if not sender.is_running:
            raise NodeFailed(f"{sender.name} exited after a bit flip:{sender.tail()}")
        passes, before = passes_of(sender), self._passes_before
        has_read = passes is not None and (before is None or passes > before + 1 or passes < before)
        return has_read and is_whole(scene, node) and is_whole(scene, sender)


@dataclass
class SecondDamage(StateFault):
    """A node is killed while it repairs its state, and its files are damaged once more."""

    def begin(self, scene: Scene) -> list[str]:
        """Remove the state of a node, kill the node during its repair, and damage a file."""
        node = self.restart(scene, _remove_state)
        inbox = data_of(node) / "raft-0" / "incoming"
        until = time.monotonic() + SNAPSHOT_SECONDS_MAX
        while node.is_running and time.monotonic() < until and not any(inbox.glob("*")):
            pass  # the transfer takes some milliseconds
        node.kill()
        harmed = [path for path in data_of(node).glob("state/*/*") if path.stat().st_size]
        if harmed:
            path = scene.draw.choice(sorted(harmed))
            flip(path, scene.draw)
            self.hit += f", killed during the repair, and {path.name} flipped"
        node.start()
        return [f"{node.name} {self.hit}"]


def _remove_state(data: Path) -> str:
    shutil.rmtree(data / "state")
    return "state removed"


def data_of(node: Node) -> Path:
    """Return the data directory of a node."""
    return Path(node.environment["TASKRAFT_DATA_DIR"])


def identity_of(node: Node) -> str:
    """Return the stored identity of a node."""
    return (data_of(node) / "raft-0" / "identity").read_text()


def page_of(node: Node, path: str) -> str:
    """Return a page of the HTTP port of a node; empty while there is none."""
    try:
        with urllib.request.urlopen(f"http://{node.http_address}{path}", timeout=5) as answer:
            content: bytes = answer.read()
    except (OSError, urllib.error.HTTPError):
        return ""
    return content.decode()


def passes_of(node: Node) -> float | None:
    """Return how many passes the scrubber of a node has completed; None: unknown."""
    found = _PASSES.search(page_of(node, "/metrics"))
    return float(found.group(1)) if found else None


def applied_of(node: Node) -> int:
    """Return the applied index of a node; 0 if it does not answer."""
    state = node.state()
    return state.state.applied_index if state is not None else 0


def is_whole(scene: Scene, node: Node) -> bool:
    """Return whether a node is ready and has applied what the leader has applied."""
    leader = scene.cluster.leader()
    if leader is None or not settled(node) or not page_of(node, "/readyz"):
        return False
    return applied_of(node) >= applied_of(leader) - LAG_MAX
