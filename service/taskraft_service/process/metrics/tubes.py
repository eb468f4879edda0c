"""Metrics of the tubes that matter most by name, of the other tubes as one sum, and of all tubes.

Tubes with own series are those with most tasks, those with most BURIED tasks, and those with the
oldest READY tasks. An alert on a series of a tube therefore sees the worst tube, however many
tubes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
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
from taskraft_service.machine.task_distributions import OTHERS, TaskDistributions, TubeDistributions
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import GONE, State

TUBES_MAX: Final = 200
"""Maximum number of tubes that have their own series because they have most tasks."""
WORST_MAX: Final = 20
"""Maximum number of tubes that have their own series because of BURIED tasks, and because of old
READY tasks."""
SLICE_TUBES: Final = 500
"""Number of tubes that are counted in one step."""
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
        ranking = _Ranking(counted)
        names = iter(counted)
        while some := list(islice(names, SLICE_TUBES)):
            ranking.add(some, self._queues.oldest_ready_ms(some))
            yield None
        named = ranking.names()
        yield from self._tasks(counted, named)
        yield GaugeMetricFamily(
            "taskraft_quarantined_tubes",
            "Number of tubes in quarantine because their driver failed.",
            value=len(self._queues.quarantined_tubes()),
        )
        yield from self._statistics(named)

    def _tasks(
        self, counted: Mapping[str, Sequence[int]], named: Sequence[str]
    ) -> Iterator[Metric]:
        tasks = GaugeMetricFamily("taskraft_tasks", "Tasks by state.", labels=("tube", "state"))
        total = self._queues.total_statistics(None)
        left = dict(total.states)
        for name in named:
            numbers = counted[name]
            for state in _STATES:
                left[state] -= numbers[state]
                tasks.add_metric((name, state.name.lower()), numbers[state])
        if len(counted) > len(named):
            for state in _STATES:
                # A tube that was dropped since the first slice is no longer in the total.
                tasks.add_metric((OTHERS, state.name.lower()), max(left[state], 0))
        yield tasks
        every = GaugeMetricFamily(
            "taskraft_all_tasks", "Tasks of all tubes by state.", labels=("state",)
        )
        for state in _STATES:
            every.add_metric((state.name.lower(),), total.states[state])
        yield every
        yield GaugeMetricFamily(
            "taskraft_all_oldest_ready_age_seconds",
            "Age of the oldest ready task of all tubes.",
            value=self._age_seconds(total.oldest_ready_ms),
        )
        yield GaugeMetricFamily("taskraft_tubes", "Number of tubes.", value=len(counted))

    def _age_seconds(self, since_ms: int) -> float:
        """Return the age of a task that is READY since an instant; 0: no task is READY."""
        return max(self._clock_ms() - since_ms, 0) / 1000 if since_ms else 0.0

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
                oldest.add_metric((name,), self._age_seconds(counts.oldest_ready_ms))
            yield None
        yield from (calls, held, oldest)


class _Ranking:
    """Chooses the tubes with own series, from slices of all tubes.

    Args:
        counted: number of tasks by state for each tube.
    """

    def __init__(self, counted: Mapping[str, Sequence[int]]) -> None:
        self._counted = counted
        self._since_ms: dict[str, int] = {}
        self._largest: list[str] = []
        self._buried: list[str] = []
        self._oldest: list[str] = []

    def add(self, names: Sequence[str], oldest_ready_ms: Mapping[str, int]) -> None:
        """Rank some more tubes, with the instants since which their oldest tasks are READY."""
        counted, since_ms = self._counted, {**self._since_ms, **oldest_ready_ms}
        self._largest = nlargest(
            TUBES_MAX, [*self._largest, *names], key=lambda name: sum(counted[name])
        )
        buried = [name for name in names if counted[name][State.BURIED]]
        self._buried = nlargest(
            WORST_MAX, [*self._buried, *buried], key=lambda name: counted[name][State.BURIED]
        )
        self._oldest = nsmallest(
            WORST_MAX, [*self._oldest, *oldest_ready_ms], key=since_ms.__getitem__
        )
        self._since_ms = {name: since_ms[name] for name in self._oldest}

    def names(self) -> Sequence[str]:
        """Return the tubes with own series: first those with most tasks."""
        return list(dict.fromkeys((*self._largest, *self._buried, *self._oldest)))


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
