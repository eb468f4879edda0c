"""Faults of disks: power loss, slow, failing and full disks, flipped bits."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.volume import Volume
from tests.drill.faults import NodeFault, Scene, await_start, start_stopped
from tools.local_node import Node, NodeFailed
from tools.power_loss import PowerLoss
from tools.sync_fault import SyncFaults

KIB, MIB = 1 << 10, 1 << 20
SMALL_FILES = {
    "TASKRAFT_LOG_SEGMENT_BYTES": str(128 * KIB),
    "TASKRAFT_LOG_FLUSH_BYTES": str(256 * KIB),
    "TASKRAFT_LOG_KEPT_BYTES": str(256 * KIB),
    "TASKRAFT_LOG_KEPT_ENTRIES": "50",
    "TASKRAFT_LOG_FLUSH_ENTRIES": "300",
}
"""Settings that let nodes write all kinds of files within seconds, snapshots included."""


@dataclass
class PowerCut(NodeFault):
    """Power loss: the nodes lose all writes that were not synced, or some of them."""

    power: PowerLoss

    def harm(self, scene: Scene) -> None:
        """Cut the power of the nodes at the same moment."""
        for node in self.hit:
            node.kill()
        for node in self.hit:
            self.power.cut_power(node, scene.draw.choice((None, scene.draw)))


@dataclass
class SlowDisk(NodeFault):
    """Syncs that take longer, or hang."""

    faults: SyncFaults
    delay_ms: int | None = 300
    """Additional time of each sync; None: the syncs hang."""
    hold_seconds: tuple[float, float] = field(default=(0.8, 2.0), kw_only=True)

    def harm(self, scene: Scene) -> None:
        """Slow the disks down."""
        for node in self.hit:
            if self.delay_ms is None:
                self.faults.hang(node)
            else:
                self.faults.delay(node, self.delay_ms)

    def heal(self, node: Node) -> None:
        """Let the disk answer again."""
        self.faults.heal(node)


@dataclass
class HungReads(NodeFault):
    """Reads of tables that hang; a read of one key stops all threads of the node."""

    faults: SyncFaults
    hold_seconds: tuple[float, float] = field(default=(1.5, 4.0), kw_only=True)

    def harm(self, scene: Scene) -> None:
        """Let each further read hang."""
        for node in self.hit:
            self.faults.hang_reads(node)

    def heal(self, node: Node) -> None:
        """Let the disk answer again."""
        self.faults.heal(node)


@dataclass
class FailingSync(NodeFault):
    """A sync that fails: the node must stop, because its disk may have lost anything."""

    faults: SyncFaults
    is_once: bool

    def harm(self, scene: Scene) -> None:
        """Let a sync fail, and wait until the nodes have stopped.

        Raises:
            NodeFailed: a node continues to run.
        """
        for node in self.hit:
            (self.faults.fail_once if self.is_once else self.faults.fail)(node)
        for node in self.hit:
            status = node.wait()
            if status == 0:
                raise NodeFailed(f"{node.name} stopped with status 0 after a failed sync")

    def heal(self, node: Node) -> None:
        """Repair the disk."""
        self.faults.heal(node)


class SmallDisks:
    """Puts the data of each node onto a small file system of its own."""

    def __init__(self, scene: Scene, size_bytes: int = 64 * MIB) -> None:
        self._volumes = {}
        for node in scene.cluster.nodes:
            volume = Volume(scene.folder / f"{node.name}-disk", size_bytes)
            scene.stack.callback(volume.unmount)
            self._volumes[node.name] = volume
            volume.hold(node)

    def ballast(self, node: Node) -> Path:
        """Return the file that fills the disk of a node."""
        return self._volumes[node.name].place / "ballast"

    def fill(self, node: Node, left_bytes: int) -> None:
        """Fill the disk of a node until ``left_bytes`` bytes are free."""
        ballast = self.ballast(node)
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(64 * KIB)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, file.tell() - left_bytes))


@dataclass
class FullDisk(NodeFault):
    """A disk without space; the node refuses puts first, and stops when it cannot write its log."""

    disks: SmallDisks
    left_bytes: int = 0
    hold_seconds: tuple[float, float] = field(default=(0.8, 2.0), kw_only=True)

    def harm(self, scene: Scene) -> None:
        """Fill the disks."""
        for node in self.hit:
            self.disks.fill(node, self.left_bytes)

    def end(self, scene: Scene) -> None:
        """Free the space, and start the nodes that have stopped."""
        for node in self.hit:
            self.disks.ballast(node).unlink()
        # A node that is about to stop does not answer, so wait until each has exited or follows.
        for node in self.hit:
            await_start(scene, node)
        start_stopped(self.hit)
