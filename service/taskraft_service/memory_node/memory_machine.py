"""The state machine of a node in memory: the queue of a real node, on a sorted dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.entities.tube_driver import TubeDriver
from taskraft_service.queue.limits import Limits
from taskraft_service.storage.memory import MemoryStore
from taskraft_service.storage.snapshot import SnapshotUnsupported

_NOWHERE: Final = Path("memory")
_PACE: Final = CollectPolicy(entries=10_000, span_ms=3_600_000)
"""Limits of the changes that are not in the dictionary yet."""


class MemoryDatabase(MemoryStore):
    """A dictionary with the interface of a database; satisfies ``machine.open_database``."""

    is_choked = False

    def flush(self) -> None:
        """Do nothing, because nothing is durable."""

    def freeze(self, place: Path) -> NoReturn:
        """Refuse: the only member of a group sends no snapshots."""
        raise SnapshotUnsupported(f"a node in memory cannot be copied to {place}")

    def close(self) -> None:
        """Do nothing, because no file is open."""


class MemoryDirectory:
    """The place of the one database; satisfies ``DatabaseDirectory``."""

    current = _NOWHERE

    def fresh(self) -> Path:
        """Return the place of the one database."""
        return _NOWHERE

    def outgoing(self) -> Path:
        """Return the place of the one database."""
        return _NOWHERE

    def switch(self) -> None:
        """Do nothing, because there is no other database to select."""

    def discard(self, place: Path) -> None:
        """Do nothing, because there is no unused database to delete."""


def memory_machine(
    monotonic_ms: Callable[[], int], drivers: Mapping[str, TubeDriver]
) -> QueueMachine:
    """Return an empty state machine in memory."""
    return QueueMachine(
        MemoryDirectory(), lambda _: MemoryDatabase(), Limits(), _PACE, monotonic_ms, drivers
    )
