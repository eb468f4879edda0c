"""Pause the campaigns of a member while its disk stores a new term or vote.

A candidate asks for votes once its term is durable, and a voter answers once its vote is durable.
On slow disks, this takes longer than an election timeout. If the member campaigned again during the
write, each election would be replaced by the next before the votes can arrive.
"""

from __future__ import annotations

from typing import Final

PAUSE_TICKS_MAX: Final = 60
"""Maximum pause after a write. The length of a longer write does not tell how long the disks of the
voters take, and the group may need this member for an election."""


class ElectionTimer:
    """Decides for each tick whether it counts towards an election by this member."""

    def __init__(self) -> None:
        self._storing_ticks = 0
        self._pause_ticks = 0

    def counts(self, *, is_vote_durable: bool) -> bool:
        """Return whether this tick counts; called once per tick.

        No tick counts while the term and the vote are being stored. After that, the same number of
        ticks is skipped, at most ``PAUSE_TICKS_MAX``, because the disks of the voters may take as
        long as this disk.
        """
        if not is_vote_durable:
            self._storing_ticks += 1
            return False
        if self._storing_ticks:
            self._pause_ticks = min(self._storing_ticks, PAUSE_TICKS_MAX)
            self._storing_ticks = 0
        if self._pause_ticks:
            self._pause_ticks -= 1
            return False
        return True
