"""Count and time handlers for Prometheus; imported only if a worker serves metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from taskraft import Task
from taskraft.worker.health import Page, WorkerHealth, WorkerState
from taskraft.worker.slots import PoolSlots

SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 300, 1_800)
"""Bounds of the histograms, in seconds: from a cache lookup to a long computation."""


class WorkerMetrics(Collector):
    """The metrics of one worker."""

    def __init__(
        self,
        health: WorkerHealth,
        slots: dict[str, PoolSlots],
        *,
        reconnects: Callable[[], int],
        failovers: Callable[[], int],
    ) -> None:
        self._health = health
        self._reconnects = reconnects
        self._failovers = failovers
        self._slots = slots
        self._registry = CollectorRegistry()
        self._outcomes = Counter(
            "taskraft_worker_outcomes",
            "Attempts by task type and outcome: acked, released, rejected, snoozed, handed_back, "
            "lost.",
            ["type", "outcome"],
            registry=self._registry,
        )
        self._process = Histogram(
            "taskraft_worker_process_duration_seconds",
            "Time of one attempt.",
            ["type"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._wait = Histogram(
            "taskraft_worker_wait_duration_seconds",
            "Time from the put, the delay included, to the start of the handler.",
            ["tube", "type"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._registry.register(self)

    def started(self, task: Task, waited_seconds: float) -> None:
        """Count the start of an attempt."""
        self._wait.labels(task.tube, task.message.spec.type).observe(max(waited_seconds, 0.0))

    def ended(self, kind: str, outcome: str, seconds: float) -> None:
        """Count the end of an attempt."""
        self._outcomes.labels(kind, outcome).inc()
        self._process.labels(kind).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics whose values are read at each scrape."""
        slots = GaugeMetricFamily("taskraft_worker_slots", "Slots of a pool.", labels=["pool"])
        used = GaugeMetricFamily("taskraft_worker_slots_used", "Slots in use.", labels=["pool"])
        stuck = GaugeMetricFamily(
            "taskraft_worker_threads_stuck", "Threads beyond their time limits.", labels=["pool"]
        )
        for pool, one in self._slots.items():
            slots.add_metric([pool], one.slots)
            used.add_metric([pool], one.used)
            stuck.add_metric([pool], one.stuck)
        state = GaugeMetricFamily(
            "taskraft_worker_state", "1 for the state of the worker.", labels=["state"]
        )
        for each in WorkerState:
            state.add_metric([each.value], float(each is self._health.state))
        delay = GaugeMetricFamily(
            "taskraft_worker_loop_delay_seconds", "Duration of one turn of the event loop."
        )
        delay.add_metric([], self._health.delay_seconds)
        reconnects = CounterMetricFamily(
            "taskraft_worker_reconnects", "Streams to the cluster that were opened again."
        )
        reconnects.add_metric([], self._reconnects())
        failovers = CounterMetricFamily(
            "taskraft_worker_failovers", "Changes of the leader that the worker has noticed."
        )
        failovers.add_metric([], self._failovers())
        return [slots, used, stuck, state, delay, reconnects, failovers]

    def page(self) -> Page:
        """Return the content of the page /metrics."""
        return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
