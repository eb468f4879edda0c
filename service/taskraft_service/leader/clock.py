"""Give the leader the time with which it stamps log entries.

The stamp is driven by a monotonic clock and approaches the wall clock slowly, so a jump of the
wall clock fires no deadline early; it never goes back, and a new leader continues from the stamps
that it has applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLEW_PER_MILLE: Final = 5
"""The stamp gains or loses at most 5 ms per second on its way to the wall clock."""


class ClusterClock:
    """The cluster's time as this node knows it, in milliseconds since the Unix epoch.

    A process trusts the wall clock once, when it starts: there is no other source then. From the
    moment that it applies entries of a living leader, their stamps outweigh it.

    Args:
        wall_ms: reads the wall clock.
        monotonic_ms: reads a clock that never goes back.
    """

    # Invariants: _offset_ms + monotonic is the present time; _floor_ms was given out or applied.

    def __init__(self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._slewed_at_ms = monotonic_ms()
        self._offset_ms = wall_ms() - self._slewed_at_ms
        self._unspent_slew = 0
        self._floor_ms = 0

    def observe(self, stamp_ms: int, *, live: bool) -> None:
        """Take note of the stamp of an applied entry.

        Args:
            stamp_ms: the stamp.
            live: the entry was made just now by another leader, it is not replayed from the log.
        """
        self._floor_ms = max(self._floor_ms, stamp_ms)
        monotonic_ms = self._monotonic_ms()
        behind = stamp_ms > self._offset_ms + monotonic_ms
        if live or behind:
            self._offset_ms = stamp_ms - monotonic_ms
            self._slewed_at_ms = monotonic_ms

    def now_ms(self) -> int:
        """Return the time for the next stamp: never lower than one given out or observed before."""
        monotonic_ms = self._monotonic_ms()
        self._slew(monotonic_ms)
        self._floor_ms = max(self._floor_ms, self._offset_ms + monotonic_ms)
        return self._floor_ms

    def _slew(self, monotonic_ms: int) -> None:
        """Move the offset towards the wall clock by at most its share of the time gone by."""
        budget = (monotonic_ms - self._slewed_at_ms) * SLEW_PER_MILLE + self._unspent_slew
        self._slewed_at_ms = monotonic_ms
        step_max, self._unspent_slew = divmod(budget, 1000)
        error_ms = self._wall_ms() - monotonic_ms - self._offset_ms
        self._offset_ms += max(-step_max, min(step_max, error_ms))
