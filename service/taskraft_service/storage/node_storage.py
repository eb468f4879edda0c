"""Name the functions with which a node opens its storage.

``NODE_STORAGE`` is what every command of the distribution uses. A program can start a node with
other functions; tests wrap the storage this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskraft_replication.machine import StateMachine
from taskraft_replication.storage.filesystem import DiskFileSystem, FileSystem
from taskraft_service.storage.rocks import RocksStore


def _unchanged(machine: StateMachine) -> StateMachine:
    return machine


@dataclass(slots=True, frozen=True)
class NodeStorage:
    """The functions with which a node opens its files, its database and its state machine."""

    open_files: Callable[[Path], FileSystem] = DiskFileSystem
    """Opens the files of a directory."""
    open_store: Callable[[Path, int, int, int], RocksStore] = RocksStore
    """Opens the database in a directory. The other arguments are the bytes of the block cache, the
    bytes of a write buffer, and the maximum number of open table files."""
    wrap_machine: Callable[[StateMachine], StateMachine] = _unchanged
    """Returns the state machine that the Raft member drives."""


NODE_STORAGE: Final = NodeStorage()
"""Files on the disk and RocksDB."""
