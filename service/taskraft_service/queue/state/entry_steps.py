"""Count the steps of long work that one entry executes.

One command or one deadline can start more work than one entry may do: the end of a session with
many leases, the release of all tasks of a tube, the start or cancellation of a group, the removal
of a tube, many deadlines at the same instant. Such work is divided into steps, and a step changes
one task. All long work shares the steps of an entry, so the entry has one bound.

If the commands of an entry make more events than the entry has steps, the entry gets one step for
each event. So long work keeps up with the commands that cause it.
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
        total: number of steps that the entry has.
    """

    __slots__ = ("left", "total")

    def __init__(self) -> None:
        """Start without steps."""
        self.left = self.total = 0

    def grow(self, events: int, steps_max: int) -> bool:
        """Add steps for the events that the commands have made; return whether there are more.

        ``events`` also has the events of the steps so far, which count once each. The entry gets at
        most ``steps_max`` steps.
        """
        more = min(events - (self.total - self.left), steps_max) - self.total
        if more <= 0:
            return False
        self.total += more
        self.left += more
        return True

    @property
    def room(self) -> int:
        """Number of steps that one kind of work may take after the commands of the entry."""
        return max(self.left, self.total // LEAST_PART, 1)
