"""Metrics of the tubes with most tasks by name, and of all other tubes as one sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from taskraft_service.distribution import Distribution
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.task_distributions import TaskDistributions, TubeDistributions
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import GONE, State

TUBES_MAX: Final = 200
"""Maximum number of tubes with their own series; these are the tubes with most tasks. The other
tubes are summed as "other"."""
SLICE_TUBES: Final = 500
"""Number of tubes that are counted in one step."""
_OTHERS: Final = "other"
_STATES: Final = tuple(state for state in State if state is not GONE)


class TubeCollector:
    """Reads the tubes at each scrape; a ``SlicedCollector``.

    The tubes change between two slices, so the metrics of different tubes belong to slightly
    different moments.

    Args:
        queues: the queues of this node.
        clock_ms: returns cluster time, in ms since the Unix epoch.
    """

    def __init__(self, queues: QueueLocator, clock_ms: Callable[[], int]) -> None:
        self._queues = queues
        self._clock_ms = clock_ms

    def slices(self) -> Iterator[Metric | None]:
        """Yield the metrics of all tubes, and None between two steps."""
        counted = self._queues.task_counts()
        yield None
        largest: list[str] = []
        names = iter(counted)
        while some := list(islice(names, SLICE_TUBES)):
            largest = nlargest(TUBES_MAX, [*largest, *some], key=lambda name: sum(counted[name]))
            yield None
        yield self._tasks(counted, largest)
        yield GaugeMetricFamily(
            "taskraft_quarantined_tubes",
            "Number of tubes in quarantine because their driver failed.",
            value=len(self._queues.quarantined_tubes()),
        )
        yield from self._statistics(largest)

    def _tasks(self, counted: Mapping[str, Sequence[int]], largest: Sequence[str]) -> Metric:
        tasks = GaugeMetricFamily("taskraft_tasks", "Tasks by state.", labels=("tube", "state"))
        left = dict(self._queues.total_statistics(None).states)
        for name in largest:
            numbers = counted[name]
            for state in _STATES:
                left[state] -= numbers[state]
                tasks.add_metric((name, state.name.lower()), numbers[state])
        if len(counted) > len(largest):
            for state in _STATES:
                # A tube that was dropped since the first slice is no longer in the total.
                tasks.add_metric((_OTHERS, state.name.lower()), max(left[state], 0))
        return tasks

    def _statistics(self, names: Sequence[str]) -> Iterator[Metric | None]:
        calls = CounterMetricFamily(
            "taskraft_operations", "Operations on tasks.", labels=("tube", "operation")
        )
        held = GaugeMetricFamily(
            "taskraft_payload_bytes", "Total payload size of the tasks.", labels=("tube",)
        )
        oldest = GaugeMetricFamily(
            "taskraft_oldest_ready_age_seconds",
            "Age of the oldest ready task.",
            labels=("tube",),
        )
        for name in names:
            for counts in self._queues.statistics((name,)):
                for kind in EventKind:
                    if number := counts.calls.by_kind[kind]:
                        calls.add_metric((name, kind.name.lower()), number)
                held.add_metric((name,), counts.payload_bytes)
                since_ms = counts.oldest_ready_ms
                age_ms = max(self._clock_ms() - since_ms, 0) if since_ms else 0
                oldest.add_metric((name,), age_ms / 1000)
            yield None
        yield from (calls, held, oldest)


class TaskTimesCollector:
    """Reads the distributions of waits, runs and attempts; a ``SlicedCollector``.

    Args:
        distributions: distributions of the sampled events.
    """

    def __init__(self, distributions: TaskDistributions) -> None:
        self._distributions = distributions

    def slices(self) -> Iterator[Metric | None]:
        """Yield the histograms, and None between two steps."""
        reads: tuple[tuple[str, str, Callable[[TubeDistributions], Distribution]], ...] = (
            (
                "taskraft_task_wait_seconds",
                "Time in READY before a take; a sample of the newest events.",
                lambda tube: tube.waits,
            ),
            (
                "taskraft_task_run_seconds",
                "Time in TAKEN until the lease ended; a sample of the newest events.",
                lambda tube: tube.runs,
            ),
            (
                "taskraft_task_attempts",
                "Attempts of tasks that ended or were buried; a sample of the newest events.",
                lambda tube: tube.attempts,
            ),
        )
        for name, text, read in reads:
            histogram = HistogramMetricFamily(name, text, labels=("tube",))
            for tube, distributions in self._distributions:
                found = read(distributions)
                histogram.add_metric((tube,), found.buckets(), found.total)
            yield histogram
            yield None
