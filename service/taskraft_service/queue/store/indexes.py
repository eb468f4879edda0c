"""Index the store: tasks by numbered sets and by unique keys, deadlines by their instants.

Memory holds only the changes since the last batch of writes. A change that is reverted before the
next batch is never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from struct import Struct
from typing import Final, Protocol, TypeAlias

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import (
    UNIQUE,
    member_key,
    member_of,
    prefix_stop,
    timer_key,
    timer_scan,
    unique_key,
)
from taskraft_service.queue.store.ordered_index import OrderedIndex, OrderKey
from taskraft_service.queue.store.store import Store, Write

SetMember: TypeAlias = tuple[int, int]
"""Number of a tube, and id of a task in that tube."""

FIRST: SetMember = (0, 0)


def set_member(tube: int, task_id: int) -> SetMember:
    """Return a member by the number of its tube and its task id."""
    return tube, task_id


class TaskSetIndex:
    """The members of all sets of one kind, by the number of the set.

    Examples are the open tasks of a group, and the tasks that depend on one task.

    A member must not be added twice. Discarding a missing member has no effect.
    """

    __slots__ = ("_fresh", "_prefix", "_store")

    def __init__(self, store: Store, prefix: bytes) -> None:
        """Use the sets whose members are stored under ``prefix``."""
        self._store = store
        self._prefix = prefix
        self._fresh: dict[int, dict[SetMember, bool]] = {}
        """For each set, the members to write to the store (True) or to delete from the store
        (False)."""

    def add(self, number: int, member: SetMember) -> None:
        """Add a member to the set ``number``."""
        fresh = self._fresh.setdefault(number, {})
        if fresh.get(member) is False:
            del fresh[member]
        else:
            fresh[member] = True

    def discard(self, number: int, member: SetMember) -> None:
        """Remove a member from the set ``number``."""
        fresh = self._fresh.setdefault(number, {})
        if fresh.get(member) is True:
            del fresh[member]
        else:
            fresh[member] = False

    def after(self, number: int, member: SetMember) -> Iterator[SetMember]:
        """Yield the members above ``member`` in order; do not change the set until the end."""
        fresh = self._fresh.get(number, {})
        added = sorted(one for one, is_there in fresh.items() if is_there and one > member)
        start = member_key(self._prefix, number, (member[0], member[1] + 1))
        stop = member_key(self._prefix, number + 1, FIRST)
        stored = (member_of(key) for key, _ in self._store.scan(start, stop))
        yield from merge(added, (one for one in stored if one not in fresh))

    def keys(self) -> Iterator[bytes]:
        """Yield the keys of all members of all sets, in order; for digests."""
        known = {key for key, _ in self._store.scan(self._prefix, prefix_stop(self._prefix))}
        for number, fresh in self._fresh.items():
            for member, is_there in fresh.items():
                key = member_key(self._prefix, number, member)
                (known.add if is_there else known.discard)(key)
        yield from sorted(known)

    def collect(self, writes: list[Write]) -> None:
        """Append the changes that are not in the store yet to ``writes``."""
        for number, fresh in self._fresh.items():
            for member, is_there in fresh.items():
                key = member_key(self._prefix, number, member)
                writes.append((key, b"" if is_there else None))
        self._fresh.clear()


_holder = Struct(">Q")
NOBODY: Final = 0
"""Task id of a unique key without a holder."""


class UniqueKeys:
    """The unique keys in use in all tubes, each with the task that holds the key.

    The holder is the last task that was put with the key, until that task is deleted. A finished
    task that is retained still holds its key, so that a producer can restart the task. Stored keys
    contain the tube number, so truncating a tube frees its keys at once; the records are deleted
    later with the tasks.
    """

    __slots__ = ("_fresh", "_store")

    def __init__(self, store: Store) -> None:
        """Use the unique keys in ``store``."""
        self._store = store
        self._fresh: dict[bytes, int] = {}

    def find(self, tube: int, key: tuple[str, ...]) -> int:
        """Return the id of the task that holds a key, or ``NOBODY``."""
        place = unique_key(tube, key)
        task_id = self._fresh.get(place)
        if task_id is not None:
            return task_id
        record = self._store.get(place)
        if record is None:
            return NOBODY
        (stored,) = _holder.unpack(record)
        return int(stored)

    def claim(self, tube: int, key: tuple[str, ...], task_id: int) -> None:
        """Make a task the holder of a key, instead of any previous holder."""
        self._fresh[unique_key(tube, key)] = task_id

    def free(self, tube: int, key: tuple[str, ...], task_id: int) -> None:
        """Free the key of a deleted task, unless another task now holds the key."""
        if self.find(tube, key) == task_id:
            self._fresh[unique_key(tube, key)] = NOBODY

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield all keys in use with the ids of their tasks, in order; for digests."""
        stored = self._store.scan(UNIQUE, prefix_stop(UNIQUE))
        known = {place: int(_holder.unpack(record)[0]) for place, record in stored}
        for place, task_id in sorted((known | self._fresh).items()):
            if task_id != NOBODY:
                yield place, task_id

    def collect(self, writes: list[Write]) -> None:
        """Append the changes that are not in the store yet to ``writes``."""
        for place, task_id in self._fresh.items():
            writes.append((place, _holder.pack(task_id) if task_id != NOBODY else None))
        self._fresh.clear()


class Timed(Protocol):
    """An object that can have a deadline: a task, a tube or a session."""

    timer: OrderKey | None
    """Entry of the object among the timers, or None."""

    def due(self) -> OrderKey | None:
        """Return the timer that the object must have in its present state, or None."""


class TimedRecord(Timed, Protocol):
    """A tube or a session, whose timer is a record of its own."""

    written: bytes | None
    """Key of the timer in the store; empty: the store has no timer; None: nothing is stored."""


class Timers(OrderedIndex):
    """The timers of all tasks, tubes and sessions: at most one each."""

    __slots__ = ()

    def __init__(self, store: Store, limits: Limits, *, stored: bool) -> None:
        """Start empty, or (``stored``) with the timers in the store."""
        super().__init__(timer_scan(store), limits.head_entries_max, stored=stored)

    def renew(self, holder: Timed) -> None:
        """Set the timer that an object must have in its present state."""
        timer = holder.due()
        if timer != holder.timer:
            if holder.timer is not None:
                self.discard(holder.timer)
            if timer is not None:
                self.add(timer)
            holder.timer = timer

    def cancel(self, holder: Timed) -> None:
        """Remove the timer of an object."""
        if holder.timer is not None:
            self.discard(holder.timer)
            holder.timer = None


def write_timer(holder: TimedRecord, writes: list[Write]) -> None:
    """Append the change of the stored timer of a tube or a session, if any, to ``writes``."""
    timer = timer_key(holder.timer) if holder.timer is not None else b""
    if timer != holder.written:
        if holder.written:
            writes.append((holder.written, None))
        if timer:
            writes.append((timer, b""))
        holder.written = timer
