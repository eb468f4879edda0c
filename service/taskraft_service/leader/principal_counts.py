"""Count what waiting calls use, in total and by principal."""

from __future__ import annotations


class PrincipalCounts:
    """A number in total and for each principal; callers without a principal have no own number."""

    __slots__ = ("_of_principals", "_total")

    def __init__(self) -> None:
        self._of_principals: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        """Return the number in total."""
        return self._total

    def count_with(self, number: int, principal: str) -> tuple[int, int]:
        """Return the numbers that ``add`` would lead to.

        Returns:
            The number in total, and that of the principal; 0 for the empty principal.
        """
        own = self._of_principals.get(principal, 0) + number
        return self._total + number, own if principal else 0

    def add(self, number: int, principal: str) -> None:
        """Add to the number in total and to that of a principal; negative: subtract."""
        self._total += number
        own = self._of_principals.get(principal, 0) + number
        if own:
            self._of_principals[principal] = own
        else:
            self._of_principals.pop(principal, None)
