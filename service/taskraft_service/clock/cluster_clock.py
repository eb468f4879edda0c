"""Estimate the cluster time on this node.

Cluster time advances with the monotonic clock of the leader and does not depend on any wall clock.
A follower receives the leader's cluster time with each heartbeat and continues it with its own
monotonic clock, so it can continue from there when it becomes leader. Each leader starts from a
lower bound, so its cluster time can be lower than the cluster time of the leader before. An
estimate therefore belongs to one leader, and its term is stored with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from taskraft_service.queue.values import value

_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_BOOTTIME advances while the machine sleeps; Linux's CLOCK_MONOTONIC does not."""
TIMER_MS_MAX: Final = 60_000
"""Maximum delay of a timer for a deadline, because cluster time may run at another rate than the
event loop."""
DRIFT_PER_MILLE: Final = 1
"""Maximum difference between the rates of two monotonic clocks, in ms per second."""
BOUND_AGE_MS: Final = 10_000
"""A follower that hears the leader forgets lower bounds older than twice this value, in ms. If its
monotonic clock is faster than ``DRIFT_PER_MILLE`` allows, its estimate stays nearly right."""


def monotonic_ms() -> int:
    """Return a clock value in ms that never goes back and advances while the machine sleeps."""
    return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def wall_ms() -> int:
    """Return the time of day in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, frozen=True)
class NodeClocks:
    """The clocks that a node reads, in ms; a node in the memory of a test has virtual clocks."""

    monotonic_ms: Callable[[], int] = monotonic_ms
    """Reads a clock that never goes back."""
    wall_ms: Callable[[], int] = wall_ms
    """Reads the time of day, in ms since the Unix epoch."""
    timer_ms_max: int = TIMER_MS_MAX
    """Maximum delay of a timer for a deadline."""


SYSTEM_CLOCKS: Final = NodeClocks()
"""The clocks of the operating system."""


@value
class TimeEstimate:
    """A lower bound of one leader's cluster time at one instant."""

    cluster_ms: int
    epoch: int
    """Term in which a leader started this cluster time from the wall clocks."""
    term: int
    """Term of the leader whose cluster time this is."""


class ClusterClock:
    """The estimate of the cluster time on this node, in milliseconds.

    Args:
        monotonic_ms: reads a clock that never goes back.
    """

    # Invariants: at _since_ms of the monotonic clock, the cluster time of the leader of ``term``
    # was at least _ahead_ms + _since_ms. _recent is the best such bound since _renewed_ms.
    # _floor_ms is the greatest timestamp that was applied, or returned for this leader's time;
    # _applied_ms is the greatest one that was applied.

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._ahead_ms: int | None = None
        self._since_ms = 0
        self._recent: tuple[int, int] | None = None
        self._renewed_ms = 0
        self._leads = False
        """Whether this clock defines the cluster time, because this node leads."""
        self._floor_ms = 0
        self._applied_ms = 0
        self.epoch = 0
        """Term in which a leader started this cluster time from the wall clocks; 0: unknown."""
        self.term = 0
        """Term of the leader whose cluster time this is; 0: unknown."""

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
        now_ms = self._monotonic_ms()
        if self._leads:
            return self._ahead_ms + now_ms
        return _continued((self._ahead_ms, self._since_ms), now_ms)

    def estimate(self) -> TimeEstimate | None:
        """Return the lower bound with its epoch and term; None if this process has none."""
        estimate_ms = self.estimate_ms()
        return None if estimate_ms is None else TimeEstimate(estimate_ms, self.epoch, self.term)

    def now_ms(self) -> int:
        """Return the next timestamp, never below an applied or an earlier timestamp of this leader.

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
        """Record the timestamp of an applied entry; timestamps of replayed entries can be old."""
        self._applied_ms = max(self._applied_ms, stamp_ms)
        if stamp_ms <= self._floor_ms:
            return  # true for each entry that this node proposed
        self._floor_ms = stamp_ms
        if self._ahead_ms is not None:
            self._raise_to(stamp_ms)

    def heard(self, cluster_ms: int, epoch: int, term: int) -> None:
        """Adopt the cluster time in a message of the leader as a lower bound.

        The cluster time has advanced during the transmission, so the received value is a lower
        bound. A higher estimate of the same leader's time is kept, because it is also a lower
        bound. After ``BOUND_AGE_MS`` or more, it is replaced by a recent one. An estimate of
        another leader's time is dropped: this leader's time may be lower.

        Args:
            cluster_ms: the cluster time in the message.
            epoch: the epoch of this cluster time.
            term: the term of the leader.
        """
        if (epoch, term) != (self.epoch, self.term):
            self.forget()
            self.epoch, self.term = epoch, term
        self._forget_old_bounds()
        self._raise_to(cluster_ms)
        self._leads = False

    def forget(self) -> None:
        """Forget the cluster time; only the applied timestamps remain."""
        self._ahead_ms = self._recent = None
        self._renewed_ms = self._monotonic_ms()
        self._floor_ms = self._applied_ms
        self._leads = False
        self.epoch = self.term = 0

    def lead(self, term: int, at_least_ms: int = 0, epoch: int = 0) -> None:
        """Define the cluster time from now on, at or above ``at_least_ms``.

        Args:
            term: the term in which this node leads.
            at_least_ms: the lowest cluster time.
            epoch: the epoch of the cluster time; 0: unchanged.
        """
        # Timestamps that this node returned as a follower are in no entry, so they do not count.
        self._floor_ms = self._applied_ms
        self._raise_to(max(at_least_ms, self.now_ms()))
        self._leads = True
        self.epoch, self.term = epoch or self.epoch, term

    def _forget_old_bounds(self) -> None:
        """Replace the lower bound every ``BOUND_AGE_MS`` by the best lower bound received since."""
        now_ms = self._monotonic_ms()
        age_ms = now_ms - self._renewed_ms
        if age_ms > BOUND_AGE_MS:
            if self._recent is None or age_ms > 2 * BOUND_AGE_MS:
                self._ahead_ms = None
            else:
                self._ahead_ms, self._since_ms = self._recent
            self._recent, self._renewed_ms = None, now_ms

    def _raise_to(self, cluster_ms: int) -> None:
        now_ms, estimate_ms = self._monotonic_ms(), self.estimate_ms()
        bound = (cluster_ms - now_ms, now_ms)
        if estimate_ms is None or cluster_ms >= estimate_ms:
            self._ahead_ms, self._since_ms = bound
        if self._recent is None or cluster_ms >= _continued(self._recent, now_ms):
            self._recent = bound


def _continued(bound: tuple[int, int], now_ms: int) -> int:
    """Return a lower bound at an instant, minus the maximum drift since it was received."""
    ahead_ms, since_ms = bound
    return ahead_ms + now_ms - (now_ms - since_ms) * DRIFT_PER_MILLE // 1_000
