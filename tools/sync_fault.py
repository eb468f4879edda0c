"""Delay or hang the fsyncs of a running node process, as a slow or hung disk does.

A small C library is compiled and loaded into the node with LD_PRELOAD. A control file for each node
changes the fault at any moment. The library replaces the functions of libc, so RocksDB is affected
too.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.local_cluster import LocalCluster, Node

SOURCE: Final = Path(__file__).with_name("sync_fault.c")
CONTROL_VARIABLE: Final = "TASKRAFT_SYNC_DELAY"


class CompilerMissing(Exception):
    """There is no C compiler, so syncs cannot be delayed."""


class SyncFaults:
    """Control over the fsyncs of the nodes of one cluster; create it before the nodes start.

    Raises:
        CompilerMissing: the command ``cc`` does not exist.
    """

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise CompilerMissing("no C compiler: the command cc does not exist")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / "sync_fault.so"
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        for node in cluster.nodes:
            control = {"LD_PRELOAD": str(library), CONTROL_VARIABLE: str(self._control(node))}
            node.environment = {**node.environment, **control}

    def hang(self, node: Node) -> None:
        """Let each sync of ``node`` hang from now on, also after a restart of the node."""
        self._write(node, "hang")

    def delay(self, node: Node, delay_ms: int) -> None:
        """Let each sync of ``node`` take ``delay_ms`` longer from now on."""
        self._write(node, str(delay_ms))

    def heal(self, node: Node) -> None:
        """End the fault: syncs that hang return at once, later syncs are not delayed."""
        self._control(node).unlink(missing_ok=True)

    def _write(self, node: Node, text: str) -> None:
        # Replaced as a whole, because the library may read the file at any moment.
        temporary = self._control(node).with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self._control(node))

    def _control(self, node: Node) -> Path:
        return self._folder / f"{node.name}.sync"
