"""Show the node to Prometheus: names begin with taskraft_, units are base units.

Counts are kept where they arise and read when they are scraped; only what needs a distribution is
observed as it happens. No label names a task; tubes are labels up to a bound, the rest is one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from replication.core.types import RaftRole
from replication.node.status import NodeStatus
from replication.observer import Counters
from service.api.endpoint import CallCounts
from service.leader.phases import Leadership
from service.leader.proposer import Proposer
from service.leader.roles import Phase, Roles
from service.leader.temporary.tubes import TemporaryTubes
from service.leader.waiters import Waiters
from service.machine.contents import Contents
from service.machine.state_machine import QueueMachine
from service.queue.commands import State
from service.queue.life_cycle import GONE, EventKind
from service.storage.disk_watch import DiskWatch

TUBES_MAX: Final = 200
"""Tubes with series of their own: those with most tasks. The others are summed as "other"."""
_OTHERS: Final = "other"
_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_COMMANDS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class RaftNode(Protocol):
    """What the metrics need of the Raft driver."""

    def status(self) -> NodeStatus:
        """Return the member's state."""

    @property
    def counters(self) -> Counters:
        """What the member has done since its start."""


class Distributions:
    """What is observed as it happens; satisfies ``proposer.EntryObserver``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "taskraft_entry_seconds",
            "From the proposal of an entry to its result, on the leader.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._commands = Histogram(
            "taskraft_entry_commands",
            "Commands in an entry.",
            buckets=_COMMANDS,
            registry=registry,
        )
        self._bytes = Histogram(
            "taskraft_entry_bytes",
            "Size of an entry.",
            buckets=tuple(64 * 4**power for power in range(9)),
            registry=registry,
        )
        self._sync = Histogram(
            "taskraft_log_sync_seconds",
            "One append to the log with its sync.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._sync_us = 0

    def entry_applied(self, commands: int, entry_bytes: int, seconds: float) -> None:
        """Observe an entry of this leader."""
        self._seconds.observe(seconds)
        self._commands.observe(commands)
        self._bytes.observe(entry_bytes)

    def synced(self, sync_us: int) -> None:
        """Observe a sync; ``sync_us`` is the sum over all of them so far."""
        self._sync.observe((sync_us - self._sync_us) / 1e6)
        self._sync_us = sync_us


class NodeCollector(Collector):
    """Reads the node when it is scraped."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that is shown
        self,
        raft: RaftNode,
        machine: QueueMachine,
        roles: Roles,
        leadership: Leadership,
        proposer: Proposer,
        waiters: Waiters,
        streams: Callable[[], int],
        calls: CallCounts,
        disk: DiskWatch,
        contents: Contents,
        temporary: TemporaryTubes,
        clock_ms: Callable[[], int],
    ) -> None:
        self._clock_ms = clock_ms
        self._raft = raft
        self._machine = machine
        self._roles = roles
        self._leadership = leadership
        self._proposer = proposer
        self._waiters = waiters
        self._streams = streams
        self._calls = calls
        self._disk = disk
        self._contents = contents
        self._temporary = temporary

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics that are read."""
        yield from self._of_raft()
        yield from self._of_log()
        yield from self._of_service()
        yield from self._of_tubes()

    def _of_raft(self) -> Iterator[Metric]:
        status = self._raft.status()
        is_leader = status.role is RaftRole.LEADER
        has_leader = self._leadership.leader is not None
        group = str(status.group_id)
        for name, text, number in (
            ("taskraft_has_leader", "1 while a leader is known.", has_leader),
            ("taskraft_is_leader", "1 while this node leads.", is_leader),
            ("taskraft_term", "The term.", status.term),
            ("taskraft_commit_index", "The last committed entry known.", status.commit),
            ("taskraft_applied_index", "The last applied entry.", status.applied),
            ("taskraft_durable_index", "The last entry kept without log.", status.durable),
            ("taskraft_first_index", "The first entry of the log.", status.first),
            ("taskraft_last_index", "The last entry of the log.", status.last),
        ):
            gauge = GaugeMetricFamily(name, text, labels=("group",))
            gauge.add_metric((group,), number)
            yield gauge
        yield _of_group(
            "taskraft_leader_changes",
            "Leaders found since the start.",
            group,
            self._leadership.changes,
        )
        lag = GaugeMetricFamily(
            "taskraft_peer_lag_entries",
            "Entries that a peer has not acknowledged; on the leader.",
            labels=("group", "peer"),
        )
        active = GaugeMetricFamily(
            "taskraft_peer_active",
            "1 while a peer answers; on the leader.",
            labels=("group", "peer"),
        )
        for member, peer in status.peers.items():
            if member != status.member_id:
                lag.add_metric((group, str(member)), peer.lag_entries)
                active.add_metric((group, str(member)), peer.is_active)
        yield lag
        yield active

    def _of_log(self) -> Iterator[Metric]:
        counters = self._raft.counters
        group = str(self._raft.status().group_id)
        for name, text, number in (
            ("taskraft_log_entries", "Entries stored.", counters.entries),
            ("taskraft_log_bytes", "Bytes written to the log.", counters.log_bytes),
            ("taskraft_log_syncs", "Syncs of the log.", counters.batches),
            ("taskraft_peer_messages_sent", "Messages to peers.", counters.sent),
            ("taskraft_peer_messages_received", "Messages from peers.", counters.received),
        ):
            yield _of_group(name, text, group, number)
        yield _gauge("taskraft_disk_free_bytes", "Free on the volume.", self._disk.free_bytes)
        yield _gauge("taskraft_disk_low", "1 while puts are refused.", self._disk.is_low)

    def _of_service(self) -> Iterator[Metric]:
        phase = GaugeMetricFamily(
            "taskraft_phase", "1 for the phase of this node.", labels=("phase",)
        )
        for known in Phase:
            phase.add_metric((known.name.lower(),), known is self._roles.phase)
        yield phase
        calls = CounterMetricFamily(
            "taskraft_calls", "Calls by method and outcome.", labels=("method", "outcome")
        )
        for (method, outcome), count in sorted(self._calls.by_outcome.items()):
            calls.add_metric((method.rpartition("/")[2], outcome), count)
        yield calls
        yield _gauge("taskraft_pending_commands", "Wait for an entry.", self._proposer.pending)
        yield _counter(
            "taskraft_dropped_commands", "Never reached the log.", self._proposer.dropped
        )
        yield _gauge("taskraft_waiting_consumers", "Consumers that wait.", len(self._waiters))
        yield _gauge(
            "taskraft_temporary_bytes",
            "Memory that temporary tubes take.",
            self._temporary.memory_bytes,
        )
        yield _gauge("taskraft_streams", "Open subscriptions.", self._streams())
        queue = self._machine.queue
        yield _gauge("taskraft_sessions", "Open sessions.", len(queue.sessions()))
        high = GaugeMetricFamily(
            "taskraft_feed_high_seq", "End of a partition of the feed.", labels=("partition",)
        )
        low = GaugeMetricFamily(
            "taskraft_feed_low_seq", "Begin of a partition of the feed.", labels=("partition",)
        )
        for view in queue.feed.views():
            high.add_metric((str(view.partition),), view.high_seq)
            low.add_metric((str(view.partition),), view.low_seq)
        yield high
        yield low

    def _of_tubes(self) -> Iterator[Metric]:
        counted = self._contents.task_counts()
        largest = nlargest(TUBES_MAX, counted, key=lambda name: sum(counted[name]))
        tasks = GaugeMetricFamily("taskraft_tasks", "Tasks by state.", labels=("tube", "state"))
        calls = CounterMetricFamily(
            "taskraft_operations", "Tasks by what happened to them.", labels=("tube", "operation")
        )
        held = GaugeMetricFamily("taskraft_payload_bytes", "Payload held.", labels=("tube",))
        oldest = GaugeMetricFamily(
            "taskraft_oldest_ready_age_seconds",
            "Age of the oldest ready task.",
            labels=("tube",),
        )
        now_ms = self._clock_ms()
        for counts in self._contents.statistics(largest):
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


def _gauge(name: str, text: str, number: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=number)


def _of_group(name: str, text: str, group: str, number: float) -> CounterMetricFamily:
    """Return a counter of one Raft group."""
    counter = CounterMetricFamily(name, text, labels=("group",))
    counter.add_metric((group,), number)
    return counter


def _counter(name: str, text: str, number: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=number)


def page(registry: CollectorRegistry) -> tuple[int, str, bytes]:
    """Return everything in the text format of Prometheus."""
    return 200, CONTENT_TYPE, generate_latest(registry)
