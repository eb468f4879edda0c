"""Keep what the shell of a leader fetches after it has applied entries."""

from __future__ import annotations

from collections.abc import Iterable

from taskraft_service.queue.entities.tube import QueueTube


class LeaderSignals:
    """Names of tubes that need attention since the last look; no part of the replicated state."""

    __slots__ = ("redefined", "woken")

    def __init__(self) -> None:
        """Begin with none."""
        self.woken: dict[str, None] = {}
        self.redefined: dict[str, None] = {}

    def wake(self, tube: QueueTube) -> None:
        """Note that tasks of a tube may be taken now, which the entry's commands do not tell.

        The shell foresees most of it and takes in the same entry; but it looks at the state before
        entries that are on their way, and at those deadlines only that are in memory.
        """
        self.woken[tube.name] = None

    def redefine(self, tube: QueueTube) -> None:
        """Note that a tube is made, changed or dropped, where its contents are kept elsewhere."""
        if tube.is_temporary:
            self.redefined[tube.name] = None

    def fetch_woken(self) -> Iterable[str]:
        """Return the tubes that got ready tasks which no command told of, since the last call."""
        woken = self.woken
        if woken:
            self.woken = {}
        return woken

    def fetch_redefined(self) -> Iterable[str]:
        """Return the temporary tubes that were made, changed or dropped since the last call."""
        redefined = self.redefined
        if redefined:
            self.redefined = {}
        return redefined
