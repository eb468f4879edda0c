"""Metrics of the tubes with most tasks by name, and of all other tubes as one sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.task_state import GONE, State

TUBES_MAX: Final = 200
"""Number of tubes with their own series: those with most tasks. The others are summed as
"other"."""
_OTHERS: Final = "other"


class TubeCollector(Collector):
    """Reads the tubes at each scrape.

    Args:
        queues: the queues of this node.
        clock_ms: returns cluster time, in ms since the Unix epoch.
    """

    def __init__(self, queues: QueueLocator, clock_ms: Callable[[], int]) -> None:
        self._queues = queues
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[Metric]:
        """Yield tasks by state, operations, payload sizes and ages."""
        counted = self._queues.task_counts()
        largest = nlargest(TUBES_MAX, counted, key=lambda name: sum(counted[name]))
        tasks = GaugeMetricFamily("taskraft_tasks", "Tasks by state.", labels=("tube", "state"))
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
        now_ms = self._clock_ms()
        for counts in self._queues.statistics(largest):
            for state, number in counts.states.items():
                tasks.add_metric((counts.tube, state.name.lower()), number)
            for kind in EventKind:
                if number := counts.calls.by_kind[kind]:
                    calls.add_metric((counts.tube, kind.name.lower()), number)
            held.add_metric((counts.tube,), counts.payload_bytes)
            since_ms = counts.oldest_ready_ms
            age_ms = max(now_ms - since_ms, 0) if since_ms else 0
            oldest.add_metric((counts.tube,), age_ms / 1000)
        others = counted.keys() - set(largest)
        if others:
            for state in State:
                if state is not GONE:
                    number = sum(counted[name][state] for name in others)
                    tasks.add_metric((_OTHERS, state.name.lower()), number)
        yield from (tasks, calls, held, oldest)
