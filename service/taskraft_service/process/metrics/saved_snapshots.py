"""Count the snapshots that this node has sent completely, and measure the age of the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class SavedSnapshots(Collector):
    """The snapshots of ``taskraft snapshot save`` since the start of the process.

    Args:
        monotonic_ms: reads a clock, in ms.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._count = 0
        self._last_ms: int | None = None

    def record(self) -> None:
        """Count one snapshot whose last byte was sent."""
        self._count += 1
        self._last_ms = self._monotonic_ms()

    @property
    def age_ms(self) -> int | None:
        """Time since the last snapshot was sent; None: none was sent."""
        return None if self._last_ms is None else self._monotonic_ms() - self._last_ms

    def collect(self) -> Iterator[Metric]:
        """Yield the counter, and the age unless no snapshot was sent."""
        yield CounterMetricFamily(
            "taskraft_snapshots_saved",
            "Snapshots that this node has sent completely to clients.",
            value=self._count,
        )
        if self.age_ms is not None:
            yield GaugeMetricFamily(
                "taskraft_snapshot_age_seconds",
                "Time since this node has sent a complete snapshot to a client.",
                value=self.age_ms / 1000,
            )
