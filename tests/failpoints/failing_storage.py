"""Open the storage of a node with failpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from taskraft_replication.machine import StateMachine
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_service.storage.node_storage import NodeStorage
from tests.failpoints.failing_filesystem import FailingFileSystem
from tests.failpoints.failing_machine import FailingMachine
from tests.failpoints.failing_store import FailingStore
from tests.failpoints.failpoints import Failpoints


def failing_storage(failpoints: Failpoints) -> NodeStorage:
    """Return functions that open files, database and state machine with failpoints."""

    def open_files(directory: Path) -> FailingFileSystem:
        return FailingFileSystem(DiskFileSystem(directory), failpoints)

    def wrap_machine(machine: StateMachine) -> FailingMachine:
        return FailingMachine(machine, failpoints)

    return NodeStorage(open_files, partial(FailingStore, failpoints), wrap_machine)
