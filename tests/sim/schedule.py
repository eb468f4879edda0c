"""Run events in virtual time: ordered by time, then by creation."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Event:
    """A scheduled call that can be cancelled."""

    __slots__ = ("is_cancelled", "name", "run")

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self.run = run
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Schedule:
    """A queue of events; time is in microseconds and advances only from event to event."""

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._queue: list[tuple[int, int, Event]] = []

    def after(self, delay_us: int, name: str, run: Callable[[], None]) -> Event:
        """Run an event ``delay_us`` from now."""
        event = Event(name, run)
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._sequence, event))
        return event

    def next(self) -> Event:
        """Move time to the next event and return it."""
        while True:
            self.now_us, _, event = heapq.heappop(self._queue)
            if not event.is_cancelled:
                return event
