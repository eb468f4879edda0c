"""Stop the election timer of a member while its disk stores a new term or vote.

A candidate asks for votes once its term is durable, and a voter answers once its vote is durable.
On slow disks, this takes longer than an election timeout. A timer that runs during
the write starts the next election before the votes can arrive, again and again.
"""

from __future__ import annotations


class ElectionTimer:
    """Decides for each tick whether it counts towards the election timeout of the core."""

    def __init__(self) -> None:
        self._storing_ticks = 0
        self._pause_ticks = 0

    def counts(self, *, is_vote_durable: bool) -> bool:
        """Return whether this tick counts; called once a tick.

        No tick counts while the term and the vote are being stored. After that, as many ticks are
        left out, because the disks of the voters may need as long as the own disk.
        """
        if not is_vote_durable:
            self._storing_ticks += 1
            return False
        if self._storing_ticks:
            self._pause_ticks, self._storing_ticks = self._storing_ticks, 0
        if self._pause_ticks:
            self._pause_ticks -= 1
            return False
        return True
