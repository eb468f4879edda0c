"""Produce the timestamps of log entries on the leader.

A timestamp advances with a monotonic clock and approaches the wall clock slowly, so a jump of the
wall clock fires no deadline early. Timestamps never go back, and a new leader continues from the
timestamps that it has applied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SLEW_PER_MILLE: Final = 5
"""The offset to the wall clock changes by at most 5 ms per second."""
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_BOOTTIME advances while the machine sleeps; Linux's CLOCK_MONOTONIC does not."""


def monotonic_ms() -> int:
    """Return a clock value in ms that never goes back and advances while the machine sleeps."""
    return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def wall_ms() -> int:
    """Return the time of day in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000


class ClusterClock:
    """Cluster time as this node knows it, in milliseconds since the Unix epoch.

    The process reads the wall clock as its start value, because no other source exists then.
    Timestamps of a live leader override it as soon as this node applies them.

    Args:
        wall_ms: reads the wall clock.
        monotonic_ms: reads a clock that never goes back.
    """

    # Invariants: the current time is _offset_ms + monotonic; _floor_ms is the greatest timestamp
    # that was returned or observed.

    def __init__(self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._slewed_at_ms = monotonic_ms()
        self._offset_ms = wall_ms() - self._slewed_at_ms
        self._unspent_slew = 0
        self._floor_ms = 0

    def observe(self, stamp_ms: int, *, live: bool) -> None:
        """Record the timestamp of an applied entry.

        Args:
            stamp_ms: timestamp of the entry.
            live: whether another leader proposed the entry just now; False for a replayed entry.
        """
        self._floor_ms = max(self._floor_ms, stamp_ms)
        monotonic_ms = self._monotonic_ms()
        behind = stamp_ms > self._offset_ms + monotonic_ms
        if live or behind:
            self._offset_ms = stamp_ms - monotonic_ms
            self._slewed_at_ms = monotonic_ms

    def now_ms(self) -> int:
        """Return the next timestamp; never lower than one that was returned or observed before."""
        monotonic_ms = self._monotonic_ms()
        self._slew(monotonic_ms)
        self._floor_ms = max(self._floor_ms, self._offset_ms + monotonic_ms)
        return self._floor_ms

    def _slew(self, monotonic_ms: int) -> None:
        """Move the offset towards the wall clock, at most by the budget of the elapsed time."""
        budget = (monotonic_ms - self._slewed_at_ms) * SLEW_PER_MILLE + self._unspent_slew
        self._slewed_at_ms = monotonic_ms
        step_max, self._unspent_slew = divmod(budget, 1000)
        error_ms = self._wall_ms() - monotonic_ms - self._offset_ms
        self._offset_ms += max(-step_max, min(step_max, error_ms))
