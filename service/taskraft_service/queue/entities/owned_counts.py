"""Count the objects of one kind by their owners."""

from __future__ import annotations


class OwnedCounts:
    """The number of objects of one kind that each principal owns.

    An object without an owner was made without access control, and counts for no principal.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        """Start without objects."""
        self._counts: dict[str, int] = {}

    def of(self, owner: str) -> int:
        """Return the number of objects of a principal; 0 for the empty name."""
        return self._counts.get(owner, 0)

    def add(self, owner: str) -> None:
        """Count a new object."""
        if owner:
            self._counts[owner] = self._counts.get(owner, 0) + 1

    def remove(self, owner: str) -> None:
        """Stop counting an object that was counted before."""
        if owner:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
