"""Count the repairs of a process, for the metrics, and limit the rate of repairs of its state."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

RESTARTS_PAUSE_SECONDS: Final = 600.0
"""Minimum time between two repairs of a running node. Damage that returns sooner has a cause that a
repair does not remove, such as a failing disk or memory: the process then ends."""


class RepairKind(Enum):
    """The data that a repair has replaced; the value is the label of the metric."""

    STATE = "state"
    LOG = "log"
    MEMBER = "member"


class RepairJournal(Collector):
    """The repairs since the start of the process.

    Args:
        monotonic_seconds: reads a clock.
    """

    def __init__(self, monotonic_seconds: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_seconds = monotonic_seconds
        self._done: Counter[RepairKind] = Counter()
        self._again_from = 0.0
        self.suspected_log = ""
        """Damage of the log that was found on the disk itself; empty: none. The next opening does
        not trust the log, although a read may get right bytes from the page cache."""

    @contextmanager
    def running(self, kind: RepairKind) -> Iterator[None]:
        """Count a repair when the block ends without an error."""
        yield
        self._done[kind] += 1

    def note(self, kind: RepairKind) -> None:
        """Count a repair that has finished."""
        self._done[kind] += 1

    def may_restart(self) -> bool:
        """Return whether the running node may repair its state now; if so, record the repair."""
        now = self._monotonic_seconds()
        if now < self._again_from:
            return False
        self._again_from = now + RESTARTS_PAUSE_SECONDS
        return True

    def collect(self) -> Iterator[Metric]:
        """Yield the counters of repairs as metrics."""
        family = CounterMetricFamily(
            "taskraft_repairs",
            "Repairs of this node since the start of its process.",
            labels=["part"],
        )
        for kind in RepairKind:
            family.add_metric([kind.value], self._done[kind])
        yield family
