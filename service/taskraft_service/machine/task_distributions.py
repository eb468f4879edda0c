"""Distributions of waits, runs and attempts of the tasks, by tube.

The sampler adds the events that it reads: at most ``EVENTS_MAX`` in each sample, the newest. On a
busy queue the counts are therefore a part of all events, and quantiles are those of this part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.distribution import Distribution
from taskraft_service.queue.entities.task_state import BURIED, READY, TAKEN
from taskraft_service.queue.feed.chunk import Event

SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
ATTEMPTS: Final = (1, 2, 3, 5, 10, 20, 50)
TUBES_MAX: Final = 50
"""Maximum number of tubes with distributions of their own. All other tubes share one."""
OTHERS: Final = "(other)"
"""Label of the sum over all other tubes; no tube can have this name."""


class TubeDistributions:
    """The distributions of one tube."""

    __slots__ = ("attempts", "runs", "waits")

    def __init__(self) -> None:
        self.waits: Final = Distribution(SECONDS)
        """Seconds in READY before a take."""
        self.runs: Final = Distribution(SECONDS)
        """Seconds in TAKEN, for each lease that has ended."""
        self.attempts: Final = Distribution(ATTEMPTS)
        """Attempts of the tasks that left TAKEN for good or were buried."""

    def add(self, event: Event) -> None:
        """Add the wait of a take, or the run and the attempts of a lease that has ended."""
        before, after = event.from_state, event.to_state
        seconds = max(event.at_ms - event.since_ms, 0) / 1000
        if before == READY and after == TAKEN:
            self.waits.add(seconds)
        elif before == TAKEN and after != TAKEN:
            self.runs.add(seconds)
            if after == BURIED or event.outcome:
                self.attempts.add(event.attempt)


class TaskDistributions:
    """The distributions of all tubes."""

    def __init__(self) -> None:
        self._by_tube: dict[str, TubeDistributions] = {OTHERS: TubeDistributions()}

    def __iter__(self) -> Iterator[tuple[str, TubeDistributions]]:
        """Return an iterator over the tubes with distributions of their own, and ``OTHERS``."""
        return iter(list(self._by_tube.items()))

    def add(self, event: Event) -> None:
        """Add an event to the distributions of its tube."""
        found = self._by_tube.get(event.tube)
        if found is None:
            is_full = len(self._by_tube) > TUBES_MAX
            name = OTHERS if is_full else event.tube
            found = self._by_tube.setdefault(name, TubeDistributions())
        found.add(event)

    def forget(self, tube: str) -> None:
        """Drop the distributions of a tube, so that another tube can have some."""
        if tube != OTHERS:
            self._by_tube.pop(tube, None)
