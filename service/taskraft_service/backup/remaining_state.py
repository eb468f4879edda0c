"""Find the best state that is left on a stopped node, and name the tasks that it lacks.

A node whose state was damaged has set the state aside. While no other member has a whole state,
this copy may be the best one that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from taskraft_replication.core.types import LogIndex
from taskraft_replication.storage.direct_reader import DirectReader
from taskraft_service.drivers import installed_drivers
from taskraft_service.machine.open_database import OpenDatabase
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import (
    BODY,
    FEED,
    GROUP,
    INSIDE_TUBES,
    REQUEST,
    SCHEDULE,
    SESSION,
    TASK,
    TASK_KEY_BYTES,
    TUBE,
    UNIQUE,
    task_id_of,
)
from taskraft_service.storage.directory import (
    STATE_DIRECTORY,
    StateForeign,
    StateMissing,
    copies_of,
    current_database,
    put_back,
)
from taskraft_service.storage.rocks import RocksStore, StateDamaged
from taskraft_service.storage.table_check import damaged_ranges

CACHE_BYTES: Final = 8 << 20
_KINDS: Final = {
    TUBE: "tubes",
    TASK: "tasks",
    BODY: "payloads",
    SESSION: "sessions",
    SCHEDULE: "schedules",
    GROUP: "groups",
    FEED: "the change feed",
    UNIQUE: "unique keys",
    REQUEST: "request ids",
}
TubeName = Callable[[int], str | None]
"""Returns the name of the tube of a number."""


@dataclass(slots=True, frozen=True)
class RemainingState:
    """A state that can be opened."""

    directory: Path
    """The directory ``state`` of the node, or a copy that was set aside."""
    index: LogIndex
    """Last entry whose effects the state contains."""
    unreadable: Sequence[str]
    """Keys in damaged blocks, for an operator; empty: the state is whole."""

    @property
    def is_in_place(self) -> bool:
        """Return whether this is the state that the node opens."""
        return self.directory.name == STATE_DIRECTORY

    def put_in_place(self) -> None:
        """Make this the state that the node opens; keep the other one."""
        if self.is_in_place:
            return
        put_back(self.directory, self.directory.with_name(STATE_DIRECTORY))


def best_state(
    data_dir: Path, cluster_id: str, member_id: int, needed: LogIndex
) -> RemainingState | None:
    """Return the state that the node opens, or else the latest copy; None: no state can be opened.

    Args:
        data_dir: the data directory, which must be locked.
        cluster_id: the cluster of the node.
        member_id: the member of the node.
        needed: lowest usable index, because the log begins after this entry.
    """
    place = data_dir / STATE_DIRECTORY
    survey = partial(_survey, cluster_id=cluster_id, member_id=member_id)
    current = survey(place) if place.is_dir() else None
    if current is not None and current.index >= needed:
        return current
    copies = [found for copy in copies_of(place) if (found := survey(copy)) is not None]
    usable = [copy for copy in copies if copy.index >= needed]
    return max(usable, key=lambda copy: (copy.index, not copy.unreadable), default=None)


def _survey(directory: Path, *, cluster_id: str, member_id: int) -> RemainingState | None:
    """Read a state and change nothing; None: the state cannot be opened."""
    try:
        database = current_database(directory, cluster_id, member_id)
        store = RocksStore(database, CACHE_BYTES, CACHE_BYTES, read_only=True)
        state = OpenDatabase(database, store, Limits(), installed_drivers())
    except (StateDamaged, StateForeign, StateMissing):
        return None
    try:
        names = state.queue.tube_name
        texts = [describe_keys(*each, names) for each in _damaged_keys(database, store)]
        return RemainingState(directory, LogIndex(state.queue.applied_index), sorted(set(texts)))
    finally:
        store.close()


def _damaged_keys(database: Path, store: RocksStore) -> Iterator[tuple[bytes, bytes]]:
    for name, whole in sorted(store.key_ranges().items()):
        file = DirectReader(database / name)
        try:
            yield from damaged_ranges(file, whole)
        finally:
            file.close()


def describe_keys(first: bytes, last: bytes, tube_name: TubeName) -> str:
    """Return what a range of keys holds, for an operator; both keys are included."""
    kinds = {first[:1], last[:1]}
    tubes = {int.from_bytes(key[1:5], "big") for key in (first, last)}
    if len(kinds | tubes) > 2 or not kinds <= {*INSIDE_TUBES}:
        names = dict.fromkeys(_KINDS.get(key[:1], "other records") for key in (first, last))
        return " to ".join(names)
    (number,) = tubes
    tube = tube_name(number) or f"number {number}"
    if kinds <= {TASK, BODY} and len(first) >= TASK_KEY_BYTES and len(last) >= TASK_KEY_BYTES:
        what = "tasks" if kinds == {TASK} else "payloads of the tasks"
        return (
            f"{what} {task_id_of(first[:TASK_KEY_BYTES])} to {task_id_of(last[:TASK_KEY_BYTES])}"
            f" of the tube {tube}"
        )
    return f"the order of tasks of the tube {tube}"
