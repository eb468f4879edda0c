"""Count the steps of long work that one entry executes.

One command or one deadline can start more work than one entry may do: the end of a session with
many leases, the release of all tasks of a tube, the start or cancellation of a group, the removal
of a tube, many deadlines at the same instant. Such work is divided into steps, and a step changes
one task. All long work shares the steps of an entry, so the entry has one bound.
"""

from __future__ import annotations

from typing import Final

LEAST_PART: Final = 8
"""Each kind of long work may take at least this part of the steps at the end of an entry, so that
no kind waits for ever."""


class EntrySteps:
    """The steps that long work may still take in the entry that is being applied.

    Attributes:
        left: number of steps that are left; 0 or less if none is left.
    """

    __slots__ = ("_least", "left")

    def __init__(self) -> None:
        """Start without steps."""
        self.left = self._least = 0

    def begin(self, steps: int) -> None:
        """Begin an entry; ``steps`` is at least 1."""
        self.left = steps
        self._least = max(steps // LEAST_PART, 1)

    @property
    def room(self) -> int:
        """Number of steps that work which goes on after the commands of the entry may take."""
        return max(self.left, self._least)
