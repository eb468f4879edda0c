"""Metrics of one node: phase, calls, waiting work, disk, change feed."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from taskraft_service.api.rpc.call_load import CallCounts
from taskraft_service.distribution import Distribution
from taskraft_service.leader.node_phases import NodePhase, PhaseMachine
from taskraft_service.leader.proposer import Proposer
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.feed.feed_consumers import ConsumerView
from taskraft_service.queue.feed.feed_partition import PartitionView
from taskraft_service.storage.disk_monitor import DiskMonitor


def _with_exemplars(
    seconds: Distribution,
) -> Sequence[tuple[str, float] | tuple[str, float, Exemplar]]:
    """Return the buckets of a distribution, with the exemplars that it has."""
    if not seconds.exemplars:
        return seconds.buckets()
    found: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    for place, (bound, count) in enumerate(seconds.buckets()):
        kept = seconds.exemplars.get(place)
        if kept is None:
            found.append((bound, count))
        else:
            shown = Exemplar(dict(kept.labels), kept.number, kept.at_seconds)
            found.append((bound, count, shown))
    return found


class NodeCollector(Collector):
    """Reads the state of the node at each scrape.

    Args:
        phases: phase machine of the node.
        calls: number of calls by method and outcome.
        proposer: commands that wait for an entry.
        waiters: waiting consumers.
        streams: returns the number of open subscriptions.
        failing_schedules: returns the number of schedules that this leader cannot run.
        temporary: temporary tubes.
        disk: volume of the data directory.
        machine: state machine of the queue.
        version: version of the installed server.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that is shown
        self,
        phases: PhaseMachine,
        calls: CallCounts,
        proposer: Proposer,
        waiters: Waiters,
        streams: Callable[[], int],
        failing_schedules: Callable[[], int],
        temporary: TemporaryTubes,
        disk: DiskMonitor,
        machine: QueueMachine,
        version: str,
    ) -> None:
        self._phases = phases
        self._calls = calls
        self._failing_schedules = failing_schedules
        self._proposer = proposer
        self._waiters = waiters
        self._streams = streams
        self._temporary = temporary
        self._disk = disk
        self._machine = machine
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the node."""
        yield self._build()
        yield self._phase()
        yield self._by_outcome()
        yield self._durations()
        yield CounterMetricFamily(
            "taskraft_dropped_commands",
            "Commands that never reached the log.",
            value=self._proposer.dropped,
        )
        for name, text, number in (
            (
                "taskraft_pending_commands",
                "Commands that wait for an entry.",
                self._proposer.pending,
            ),
            ("taskraft_waiting_consumers", "Waiting consumers.", len(self._waiters)),
            ("taskraft_streams", "Open subscriptions.", self._streams()),
            (
                "taskraft_schedules_failing",
                "Schedules whose times this leader cannot compute.",
                self._failing_schedules(),
            ),
            ("taskraft_sessions", "Open sessions.", self._machine.queue.session_count),
            (
                "taskraft_temporary_bytes",
                "Memory of the temporary tubes.",
                self._temporary.memory_bytes,
            ),
            (
                "taskraft_disk_free_bytes",
                "Free disk space of the data directory's volume.",
                self._disk.free_bytes,
            ),
            (
                "taskraft_disk_low",
                "1 while puts are refused because free disk space is low.",
                self._disk.is_low,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=number)
        yield from self._feed()

    def _build(self) -> Metric:
        build = GaugeMetricFamily(
            "taskraft_build_info",
            "1, with the versions of the server and of Python.",
            labels=("version", "python"),
        )
        build.add_metric((self._version, platform.python_version()), 1)
        return build

    def _phase(self) -> Metric:
        phase = GaugeMetricFamily(
            "taskraft_phase", "1 for the phase of this node.", labels=("phase",)
        )
        for known in NodePhase:
            phase.add_metric((known.name.lower(),), known is self._phases.phase)
        return phase

    def _by_outcome(self) -> Metric:
        calls = CounterMetricFamily(
            "taskraft_calls", "Calls by method and outcome.", labels=("method", "outcome")
        )
        for (method, outcome), count in sorted(self._calls.by_outcome.items()):
            calls.add_metric((method.rpartition("/")[2], outcome), count)
        return calls

    def _durations(self) -> Metric:
        durations = HistogramMetricFamily(
            "taskraft_call_seconds",
            "Time of unary calls on this node, with waits for tasks and for the leader.",
            labels=("method",),
        )
        for method, seconds in sorted(self._calls.seconds.items()):
            if not seconds.is_empty:
                name = method.rpartition("/")[2]
                durations.add_metric((name,), _with_exemplars(seconds), seconds.total)
        return durations

    def _feed(self) -> Iterator[Metric]:
        high = GaugeMetricFamily(
            "taskraft_feed_high_seq",
            "Sequence number of a feed partition's end.",
            labels=("partition",),
        )
        low = GaugeMetricFamily(
            "taskraft_feed_low_seq",
            "Sequence number of a feed partition's begin.",
            labels=("partition",),
        )
        for view in self._machine.queue.feed.views():
            high.add_metric((str(view.partition),), view.high_seq)
            low.add_metric((str(view.partition),), view.low_seq)
        yield high
        yield low
        queue = self._machine.queue
        yield from consumer_metrics(queue.feed.views(), queue.consumers())


def consumer_metrics(
    views: Sequence[PartitionView], consumers: Sequence[ConsumerView]
) -> Iterator[Metric]:
    """Yield how far each named consumer is behind, and how many events it can no longer read.

    Partitions that a consumer has not committed are not counted.
    """
    lag = GaugeMetricFamily(
        "taskraft_feed_consumer_lag_events",
        "Events of the feed that a named consumer has not committed.",
        labels=("consumer",),
    )
    lost = GaugeMetricFamily(
        "taskraft_feed_consumer_lost_events",
        "Events that retention removed before a named consumer committed them.",
        labels=("consumer",),
    )
    for consumer in consumers:
        positions = consumer.next_seq
        read = [(view, positions[view.partition]) for view in views if view.partition in positions]
        lag.add_metric((consumer.name,), sum(max(view.high_seq - seq, 0) for view, seq in read))
        lost.add_metric((consumer.name,), sum(max(view.low_seq - seq, 0) for view, seq in read))
    yield lag
    yield lost
