"""Delay, hang or fail the fsyncs of a running node process, or hang its reads, as a bad disk does.

A small C library is compiled and loaded into the node with LD_PRELOAD. A control file for each node
selects the fault and can change at any time. The library replaces the functions of libc, so RocksDB
is affected too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.local_cluster import LocalCluster
from tools.local_node import Node
from tools.preload import add_library

SOURCE: Final = Path(__file__).with_name("sync_fault.c")
CONTROL_VARIABLE: Final = "TASKRAFT_SYNC_DELAY"


class SyncFaults:
    """Control over the disks of the nodes of one cluster; create it before the nodes start.

    Raises:
        CompilerMissing: the command ``cc`` does not exist.
    """

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._folder = folder
        for node in cluster.nodes:
            add_library(node, SOURCE, folder, {CONTROL_VARIABLE: str(self._control(node))})

    def hang(self, node: Node) -> None:
        """Make each sync of ``node`` hang from now on, also after a restart of the node."""
        self._write(node, "hang")

    def delay(self, node: Node, delay_ms: int) -> None:
        """Make each sync of ``node`` take ``delay_ms`` longer from now on."""
        self._write(node, str(delay_ms))

    def fail(self, node: Node) -> None:
        """Make each sync of ``node`` fail with EIO from now on."""
        self._write(node, "fail")

    def fail_once(self, node: Node) -> None:
        """Let the next sync of ``node`` fail with EIO."""
        self._write(node, "once")

    def lie(self, node: Node) -> None:
        """Make each sync of ``node`` succeed without effect from now on."""
        self._write(node, "lie")

    def hang_reads(self, node: Node) -> None:
        """Make each read of a table file of RocksDB in ``node`` hang from now on."""
        self._write(node, "read")

    def heal(self, node: Node) -> None:
        """End the fault: hanging calls return at once, and later calls are not delayed."""
        self._control(node).unlink(missing_ok=True)

    def _write(self, node: Node, text: str) -> None:
        # The file is replaced atomically, because the library may read the file at any time.
        temporary = self._control(node).with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self._control(node))

    def _control(self, node: Node) -> Path:
        return self._folder / f"{node.name}.sync"
