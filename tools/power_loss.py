"""Simulate power loss of node processes: a SIGKILL discards unsynced writes in their data.

A small C library is loaded into each node with LD_PRELOAD and keeps a copy of everything that the
node has synced. ``cut_power`` kills the node and puts the copy in the place of its data directory.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.local_cluster import LocalCluster
from tools.local_node import Node
from tools.preload import add_library

SOURCE: Final = Path(__file__).with_name("power_loss.c")
PAGE_BYTES: Final = 4096


@dataclass(frozen=True)
class _Name:
    """A name in a directory, and the inode that has this name."""

    inode: int
    is_folder: bool
    text: str


class PowerLoss:
    """The power of the nodes of one cluster; create it before the nodes start.

    Raises:
        CompilerMissing: the command ``cc`` does not exist.
    """

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        for node in cluster.nodes:
            copy = self._copy(node)
            _clear(copy)
            self._data(node).mkdir(parents=True, exist_ok=True)
            settings = {
                "TASKRAFT_DURABLE_OF": str(self._data(node).resolve()),
                "TASKRAFT_DURABLE_COPY": str(copy),
            }
            add_library(node, SOURCE, folder, settings)

    def cut_power(self, node: Node, draw: random.Random | None = None) -> None:
        """Kill a node; its disk keeps everything that was synced.

        Without ``draw``, the disk keeps nothing else. With it, the disk also keeps some unsynced
        pages and names, because a disk may write them in any order.
        """
        node.kill()
        data, copy = self._data(node), self._copy(node)
        restored = data.with_name("restored")
        restored.mkdir()
        self._restore_folder(copy, data, restored, draw)
        shutil.rmtree(data)
        restored.rename(data)
        _clear(copy)
        _keep_all(data, copy)

    def _restore_folder(
        self, copy: Path, source: Path, target: Path, draw: random.Random | None
    ) -> None:
        """Write the durable content of ``source`` into the empty folder ``target``."""
        listed = copy / "names" / str(source.stat().st_ino)
        names = _read_names(listed) if listed.exists() else []
        if draw is not None and draw.random() < 0.5:
            names = _names_of(source)
        for name in names:
            if name.is_folder:
                if (source / name.text).is_dir():
                    (target / name.text).mkdir()
                    self._restore_folder(copy, source / name.text, target / name.text, draw)
                continue
            durable, written = (copy / kind / str(name.inode) for kind in ("files", "pins"))
            content = durable.read_bytes() if durable.exists() else b""
            if draw is not None and written.exists():
                content = _mixed(content, written.read_bytes(), draw)
            (target / name.text).write_bytes(content)

    @staticmethod
    def _data(node: Node) -> Path:
        return Path(node.environment["TASKRAFT_DATA_DIR"])

    @staticmethod
    def _copy(node: Node) -> Path:
        return node.folder / "durable"


def _mixed(durable: bytes, written: bytes, draw: random.Random) -> bytes:
    """Return one possible content of the disk during the change from ``durable`` to ``written``."""
    way = draw.randrange(3)
    if way == 0:
        return durable
    if way == 1:
        return written
    size = draw.choice((len(durable), len(written)))
    pages = [
        draw.choice((durable, written))[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
        for at in range(0, size, PAGE_BYTES)
    ]
    return b"".join(pages)[:size]


def _read_names(path: Path) -> list[_Name]:
    found = []
    for line in path.read_text().splitlines():
        inode, kind, text = line.split(" ", 2)
        found.append(_Name(int(inode), kind == "d", text))
    return found


def _names_of(folder: Path) -> list[_Name]:
    return [
        _Name(entry.inode(), entry.is_dir(follow_symlinks=False), entry.name)
        for entry in os.scandir(folder)
    ]


def _clear(copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    for kind in ("files", "names", "pins"):
        (copy / kind).mkdir(parents=True)


def _keep_all(folder: Path, copy: Path) -> None:
    """Record everything in a folder as durable."""
    names = _names_of(folder)
    lines = [f"{name.inode} {'d' if name.is_folder else 'f'} {name.text}\n" for name in names]
    (copy / "names" / str(folder.stat().st_ino)).write_text("".join(lines))
    for name in names:
        path = folder / name.text
        if name.is_folder:
            _keep_all(path, copy)
        else:
            shutil.copyfile(path, copy / "files" / str(name.inode))
            os.link(path, copy / "pins" / str(name.inode))
