"""Know which open tasks belong to which group, in the store and what it does not know yet.

A member stands here from its put until it ends or is buried. Between two batches of writes the
changes are in memory; a member that comes and goes in between is never written.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, TypeAlias

from service.queue.keys import member_key, member_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.queue.store import Store, Write

Member: TypeAlias = tuple[int, int]
"""Number of a tube, and id of a task in it."""

FIRST: Member = (0, 0)


class Members:
    """The members of all groups, by the group's number."""

    __slots__ = ("_fresh", "_store")

    def __init__(self, store: Store) -> None:
        """Begin with what the store holds."""
        self._store = store
        self._fresh: dict[int, dict[Member, bool]] = {}
        """By group: whether a member was added (True) or removed since the last batch."""

    def add(self, group: int, member: Member) -> None:
        """Add a member."""
        self._fresh.setdefault(group, {})[member] = True

    def discard(self, group: int, member: Member) -> None:
        """Remove a member."""
        fresh = self._fresh.setdefault(group, {})
        if fresh.pop(member, None) is None:
            fresh[member] = False

    def after(self, group: int, member: Member) -> Iterator[Member]:
        """Yield the members of a group behind one in order; they must not change meanwhile."""
        fresh = self._fresh.get(group, {})
        added = sorted(one for one, is_there in fresh.items() if is_there and one > member)
        start = member_key(group, (member[0], member[1] + 1))
        stop = member_key(group + 1, FIRST)
        stored = (member_of(key) for key, _ in self._store.scan(start, stop))
        yield from merge(added, (one for one in stored if one not in fresh))

    def collect(self, writes: list[Write]) -> None:
        """Append what the store does not have yet to ``writes``."""
        for group, fresh in self._fresh.items():
            for member, is_there in fresh.items():
                writes.append((member_key(group, member), b"" if is_there else None))
        self._fresh.clear()
