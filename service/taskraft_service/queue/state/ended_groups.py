"""Hold the ended groups in the order of their ends: all of them, and those of each principal."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeAlias

from taskraft_service.queue.entities.group import TaskGroup

EndedGroup: TypeAlias = tuple[int, int, str]
"""Instant of the end in cluster time (ms), number and name of a group."""


class EndedGroups:
    """The ended groups, the first one first.

    Nearly all groups are added at the end and removed at the beginning of a list. Both take some
    microseconds with as many groups as ``groups_max`` allows.
    """

    __slots__ = ("_by_owner", "in_order")

    def __init__(self) -> None:
        """Start without groups."""
        self.in_order: list[EndedGroup] = []
        """All groups; only this class changes the list."""
        self._by_owner: dict[str, list[EndedGroup]] = {}

    def add(self, group: TaskGroup) -> None:
        """Add a group that has ended."""
        one = _key(group)
        insort(self.in_order, one)
        if group.owner:
            insort(self._by_owner.setdefault(group.owner, []), one)

    def remove(self, group: TaskGroup) -> None:
        """Remove a group."""
        one = _key(group)
        del self.in_order[bisect_left(self.in_order, one)]
        if group.owner:
            own = self._by_owner[group.owner]
            del own[bisect_left(own, one)]
            if not own:
                del self._by_owner[group.owner]

    def first(self) -> EndedGroup | None:
        """Return the group that ended first, or None."""
        return self.in_order[0] if self.in_order else None

    def first_of(self, owner: str) -> EndedGroup | None:
        """Return the group of a principal that ended first, or None."""
        own = self._by_owner.get(owner)
        return own[0] if own else None


def _key(group: TaskGroup) -> EndedGroup:
    return (group.ended_ms, group.number, group.name)
