"""Compute how many workers a tube needs, with formulas of queueing theory.

M/M/c waiting times are those of Erlang C. The approximation of Allen and Cunneen scales them for
arrivals and runs of any variability: by half the sum of the two squared coefficients of variation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WORKERS_MAX: Final = 100_000
"""Maximum result, which bounds the work of the computation."""


def erlang_c(workers: int, offered: float) -> float:
    """Return the probability that a task has to wait.

    Args:
        workers: number of workers, at least 1.
        offered: arrivals per second times seconds of a run, in Erlang; at least 0.
    """
    if offered >= workers:
        return 1.0
    blocked = 1.0
    for number in range(1, workers + 1):  # Erlang B by recursion
        blocked = offered * blocked / (number + offered * blocked)
    busy = offered / workers
    return blocked / (1 - busy + busy * blocked)


@dataclass(slots=True, frozen=True)
class CapacityLoad:
    """The load of a tube.

    Attributes:
        arrivals_per_s: arrivals per second.
        run_s: mean time of a run in seconds.
        arrival_variation: squared coefficient of variation of the times between arrivals; 1 for
            random arrivals.
        run_variation: squared coefficient of variation of the runs; 1 for exponential runs.
    """

    arrivals_per_s: float
    run_s: float
    arrival_variation: float = 1.0
    run_variation: float = 1.0

    @property
    def offered(self) -> float:
        """Offered load in Erlang: the mean number of busy workers."""
        return self.arrivals_per_s * self.run_s

    def mean_wait_s(self, workers: int) -> float:
        """Return the mean wait in seconds; infinite if the workers cannot keep up."""
        if self.offered >= workers:
            return float("inf")
        waits = erlang_c(workers, self.offered) * self.run_s / (workers - self.offered)
        return waits * (self.arrival_variation + self.run_variation) / 2

    def workers_for(self, wait_s: float) -> int:
        """Return the smallest number of workers whose mean wait is at most ``wait_s``, at least 1.

        Raises:
            ValueError: more than WORKERS_MAX workers are needed, or ``wait_s`` is negative.
        """
        if wait_s < 0:
            raise ValueError(f"the wait must be at least 0 s; got {wait_s}")
        low, high = int(self.offered), int(self.offered) + 1
        while self.mean_wait_s(high) > wait_s:
            low, high = high, 2 * high
            if high > 2 * WORKERS_MAX:
                raise ValueError(f"a mean wait of {wait_s} s needs more than {WORKERS_MAX} workers")
        while high - low > 1:  # the wait decreases with the number of workers
            middle = (low + high) // 2
            if self.mean_wait_s(middle) > wait_s:
                low = middle
            else:
                high = middle
        return high
