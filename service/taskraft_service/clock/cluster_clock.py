"""Estimate the cluster time on this node.

Cluster time advances with the monotonic clock of the leader and does not depend on any wall clock.
A follower receives the leader's cluster time with each heartbeat and continues it with its own
monotonic clock, so it can continue from there when it becomes leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_BOOTTIME advances while the machine sleeps; Linux's CLOCK_MONOTONIC does not."""
DRIFT_PER_MILLE: Final = 1
"""Maximum difference between the rates of two monotonic clocks, in ms per second."""


def monotonic_ms() -> int:
    """Return a clock value in ms that never goes back and advances while the machine sleeps."""
    return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def wall_ms() -> int:
    """Return the time of day in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000


class ClusterClock:
    """Cluster time as this node knows it, in milliseconds.

    Args:
        monotonic_ms: reads a clock that never goes back.
    """

    # Invariants: at _since_ms of the monotonic clock, the cluster time was at least
    # _ahead_ms + _since_ms. _floor_ms is the greatest timestamp that was applied or returned.

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ahead_ms: int | None = None
        self._since_ms = 0
        self._leads = False
        """Whether this clock defines the cluster time, because this node leads."""
        self._floor_ms = 0

    @property
    def is_known(self) -> bool:
        """Return whether this process has received, or has chosen, the cluster time."""
        return self._ahead_ms is not None

    def estimate_ms(self) -> int | None:
        """Return a lower bound of the cluster time; None if this process does not know it.

        A follower subtracts the maximum clock drift since it received the bound.
        """
        if self._ahead_ms is None:
            return None
        monotonic_ms = self._monotonic_ms()
        estimate_ms = self._ahead_ms + monotonic_ms
        if not self._leads:
            estimate_ms -= (monotonic_ms - self._since_ms) * DRIFT_PER_MILLE // 1_000
        return estimate_ms

    def now_ms(self) -> int:
        """Return the next timestamp, at least the highest one returned or applied before.

        While the cluster time is unknown, this is the greatest timestamp that was applied.
        """
        if self._leads and self._ahead_ms is not None:
            estimate_ms: int | None = self._ahead_ms + self._monotonic_ms()  # runs for each entry
        else:
            estimate_ms = self.estimate_ms()
        if estimate_ms is not None and estimate_ms > self._floor_ms:
            self._floor_ms = estimate_ms
        return self._floor_ms

    def applied(self, stamp_ms: int) -> None:
        """Record the timestamp of an applied entry, which may be an old one."""
        if stamp_ms <= self._floor_ms:
            return  # as for each entry of this leader
        self._floor_ms = stamp_ms
        if self._ahead_ms is not None:
            self._raise_to(stamp_ms)

    def heard(self, cluster_ms: int) -> None:
        """Adopt the cluster time in a message of the leader as a lower bound.

        The message took an unknown time, so the cluster time is at least the given one. A higher
        estimate is kept, because it is a lower bound too.
        """
        self._raise_to(cluster_ms)
        self._leads = False

    def lead(self, at_least_ms: int = 0) -> None:
        """Define the cluster time from now on, starting at or above ``at_least_ms``."""
        self._raise_to(max(at_least_ms, self.now_ms()))
        self._leads = True

    def _raise_to(self, cluster_ms: int) -> None:
        estimate_ms = self.estimate_ms()
        if estimate_ms is None or cluster_ms >= estimate_ms:
            self._since_ms = self._monotonic_ms()
            self._ahead_ms = cluster_ms - self._since_ms
