"""Metrics of the scrubber and of the comparison of states."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_replication.damage import DamagedPart
from taskraft_service.machine.state_comparison import StateComparison
from taskraft_service.storage.scrubber import Scrubber
from taskraft_service.storage.state_scrub import UnknownTables


class ScrubCollector(Collector):
    """Reads the progress of the scrubber at each scrape.

    Args:
        scrubber: the scrubber.
        unknown: tables that it could not check.
        comparison: comparison of the states of the members.
    """

    def __init__(
        self, scrubber: Scrubber, unknown: UnknownTables, comparison: StateComparison
    ) -> None:
        self._comparison = comparison
        self._scrubber = scrubber
        self._unknown = unknown

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; an unknown age is left out."""
        progress = self._scrubber.progress
        yield CounterMetricFamily(
            "taskraft_scrubbed_bytes", "Bytes that the scrubber has read.", progress.bytes_read
        )
        yield CounterMetricFamily(
            "taskraft_scrub_passes", "Complete passes of the scrubber.", progress.passes
        )
        yield CounterMetricFamily(
            "taskraft_scrub_unknown_tables",
            "Tables whose format the scrubber could not check.",
            self._unknown.count,
        )
        age_ms = self._scrubber.age_ms()
        if age_ms is not None:
            yield GaugeMetricFamily(
                "taskraft_scrub_age_seconds",
                "Time since the last complete pass of the scrubber, also of an earlier process.",
                value=age_ms / 1000,
            )
        yield CounterMetricFamily(
            "taskraft_state_comparisons",
            "Comparisons of the states that this node led and in which a majority agreed.",
            self._comparison.compared,
        )
        yield CounterMetricFamily(
            "taskraft_state_differences",
            "Comparisons with a difference, as far as this node led them.",
            self._comparison.differences,
        )
        damaged = GaugeMetricFamily(
            "taskraft_damaged_files",
            "Files in which the scrubber has found damage since the start of the process.",
            labels=["part"],
        )
        for part in DamagedPart:
            found = sum(each.part is part for each in progress.damage)
            damaged.add_metric([part], found)
        yield damaged
