"""Keep numbered sets of tasks in the store, with the changes since the last batch in memory.

Examples are the open tasks of a group, and the tasks that depend on one task. A member that is
added and removed between two batches of writes is never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import TypeAlias

from taskraft_service.queue.store.keys import member_key, member_of, prefix_stop
from taskraft_service.queue.store.store import Store, Write

SetMember: TypeAlias = tuple[int, int]
"""Number of a tube, and id of a task in that tube."""

FIRST: SetMember = (0, 0)


class TaskSetIndex:
    """Hold the members of all sets of one kind, by the number of the set.

    Add a member only to a set without it. Discarding a member that is not in the set is allowed.
    """

    __slots__ = ("_fresh", "_prefix", "_store")

    def __init__(self, store: Store, prefix: bytes) -> None:
        """Open the sets whose members are stored under ``prefix``."""
        self._store = store
        self._prefix = prefix
        self._fresh: dict[int, dict[SetMember, bool]] = {}
        """By set: members to write to the store (True), and members to delete from it (False)."""

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
        """Yield the members above ``member`` in order; the set must not change meanwhile."""
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
