"""Metrics of the event loop: long runs by place."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_service.process.loop_runs import OTHER_PLACES, LoopRuns


class LoopCollector(Collector):
    """Reads the counts of long runs at each scrape.

    Args:
        runs: counts the runs of the event loop.
    """

    def __init__(self, runs: LoopRuns) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the event loop."""
        long = CounterMetricFamily(
            "taskraft_loop_long_runs",
            "Runs of the event loop that used more CPU time than a limit.",
            labels=("over", "place", "method"),
        )
        for limit, counts in (("10ms", self._runs.long), ("100ms", self._runs.very_long)):
            # A series from the start, because the increase of a series that appears is unknown.
            long.add_metric((limit, OTHER_PLACES.name, ""), counts.get(OTHER_PLACES, 0))
            for place, count in sorted(counts.items()):
                if place != OTHER_PLACES:
                    long.add_metric((limit, place.name, place.method), count)
        yield long
        yield GaugeMetricFamily(
            "taskraft_loop_longest_run_seconds",
            "CPU time of the longest run of the event loop since the start.",
            value=self._runs.longest_seconds,
        )
