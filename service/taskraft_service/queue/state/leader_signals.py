"""Collect tubes that the leader must look at after entries are applied.

There are two lists: tubes where tasks became READY although no command predicts it, and temporary
tubes whose definition changed. Neither list is part of the replicated state.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskraft_service.queue.entities.tube import QueueTube


class LeaderSignals:
    """Names of tubes that the leader must look at."""

    __slots__ = ("redefined", "woken")

    def __init__(self) -> None:
        """Start empty."""
        self.woken: dict[str, None] = {}
        self.redefined: dict[str, None] = {}

    def signal_ready(self, tube: QueueTube) -> None:
        """Note that tasks of a tube may be taken now, which the entry's commands do not tell.

        The shell foresees most of it and takes in the same entry; but it looks at the state before
        entries that are on their way, and at those deadlines only that are in memory.
        """
        self.woken[tube.name] = None

    def signal_redefined(self, tube: QueueTube) -> None:
        """Note that a temporary tube was created, changed or dropped; ignores other tubes."""
        if tube.is_temporary:
            self.redefined[tube.name] = None

    def fetch_woken(self) -> Iterable[str]:
        """Return the tubes where tasks became READY unpredicted, since the last call."""
        woken = self.woken
        if woken:
            self.woken = {}
        return woken

    def fetch_redefined(self) -> Iterable[str]:
        """Return the temporary tubes whose definition changed since the last call."""
        redefined = self.redefined
        if redefined:
            self.redefined = {}
        return redefined
