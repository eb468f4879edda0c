"""Metrics of the clocks of one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_service.clock.group_clock import GroupClock


class ClockCollector(Collector):
    """Reads the clocks at each scrape.

    Args:
        clock: the clocks of this node.
        wall_offset_ms: reads the wall offset in the applied state.
    """

    def __init__(self, clock: GroupClock, wall_offset_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._wall_offset_ms = wall_offset_ms

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; an unknown value is left out."""
        clock = self._clock
        yield GaugeMetricFamily(
            "taskraft_cluster_time_known",
            "1 if this process knows the cluster time.",
            value=clock.cluster.is_known,
        )
        yield GaugeMetricFamily(
            "taskraft_wall_clock_deviates",
            "1 while the wall clock of this node differs from those of a majority.",
            value=clock.deviates,
        )
        for name, text, milliseconds in (
            (
                "taskraft_wall_offset_seconds",
                "Wall time of the cluster minus cluster time.",
                self._wall_offset_ms(),
            ),
            (
                "taskraft_wall_clock_offset_seconds",
                "Wall clock of this node minus cluster time.",
                clock.own_offset_ms,
            ),
            (
                "taskraft_wall_clock_deviation_seconds",
                "Wall clock of this node minus the wall clocks of a majority.",
                clock.wall_deviation_ms,
            ),
        ):
            if milliseconds is not None:
                yield GaugeMetricFamily(name, text, value=milliseconds / 1000)
