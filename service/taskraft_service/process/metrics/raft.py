"""Metrics of one Raft group, read from its member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_replication.core.types import MemberId, RaftRole
from taskraft_replication.node.status import NodeStatus
from taskraft_replication.observer import RaftCounters


class MeasuredMember(Protocol):
    """The Raft member, as the metrics use it."""

    def status(self) -> NodeStatus:
        """Return the member's state."""

    @property
    def disk_waited_ms(self) -> int:
        """Time for which the oldest item of storage work has been outstanding."""

    @property
    def is_disk_stalled(self) -> bool:
        """Whether the disk has not answered for ``disk_stall_ms``."""

    @property
    def counters(self) -> RaftCounters:
        """Counters of the member since its start."""


class RaftCollector(Collector):
    """Reads a member at each scrape.

    Args:
        member: the Raft member.
        has_leader: returns whether a leader is known.
        leader_changes: returns how many leaders were seen since the start.
    """

    def __init__(
        self,
        member: MeasuredMember,
        has_leader: Callable[[], bool],
        leader_changes: Callable[[], int],
    ) -> None:
        self._member = member
        self._has_leader = has_leader
        self._leader_changes = leader_changes

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the group."""
        status = self._member.status()
        group = str(status.group_id)
        yield from self._indexes(status, group)
        yield from self._counts(group)
        yield from _peers(status, group)

    def _indexes(self, status: NodeStatus, group: str) -> Iterator[Metric]:
        for name, text, number in (
            ("taskraft_has_leader", "1 while a leader is known.", self._has_leader()),
            (
                "taskraft_is_leader",
                "1 while this node leads.",
                status.role is RaftRole.LEADER,
            ),
            (
                "taskraft_voters",
                "Voters of the cluster as this node knows it, running or not.",
                len(_voters(status)),
            ),
            (
                "taskraft_is_voter",
                "1 if this node is a voter of the cluster.",
                status.member_id in _voters(status),
            ),
            ("taskraft_term", "Current term.", status.term),
            (
                "taskraft_commit_index",
                "Index of the last entry known to be committed.",
                status.commit,
            ),
            ("taskraft_applied_index", "Index of the last applied entry.", status.applied),
            (
                "taskraft_durable_index",
                "Index of the last entry whose effects are durable without the log.",
                status.durable,
            ),
            ("taskraft_first_index", "Index of the first entry of the log.", status.first),
            ("taskraft_last_index", "Index of the last entry of the log.", status.last),
            (
                "taskraft_disk_wait_seconds",
                "Time for which the disk has not answered a write of the log or of the state.",
                self._member.disk_waited_ms / 1000,
            ),
            (
                "taskraft_disk_stalled",
                "1 while the disk has not answered a write for disk_stall_ms.",
                self._member.is_disk_stalled,
            ),
        ):
            gauge = GaugeMetricFamily(name, text, labels=("group",))
            gauge.add_metric((group,), number)
            yield gauge

    def _counts(self, group: str) -> Iterator[Metric]:
        counters = self._member.counters
        for name, text, number in (
            (
                "taskraft_leader_changes",
                "Leaders seen since the start.",
                self._leader_changes(),
            ),
            ("taskraft_log_entries", "Entries written to the log.", counters.entries),
            ("taskraft_log_bytes", "Bytes written to the log.", counters.log_bytes),
            ("taskraft_log_syncs", "Fsyncs of the log.", counters.batches),
            (
                "taskraft_disk_stalls",
                "Times that the disk did not answer for disk_stall_ms.",
                counters.disk_stalls,
            ),
            (
                "taskraft_disk_handovers",
                "Leaderships that this node gave up because of its disk.",
                counters.disk_handovers,
            ),
            ("taskraft_peer_messages_sent", "Messages sent to peers.", counters.sent),
            ("taskraft_peer_messages_received", "Messages received from peers.", counters.received),
        ):
            counter = CounterMetricFamily(name, text, labels=("group",))
            counter.add_metric((group,), number)
            yield counter


def _voters(status: NodeStatus) -> Set[MemberId]:
    """Return the voters of the configuration; of both halves while the configuration changes."""
    return {*status.conf_state.voters, *status.conf_state.voters_outgoing}


def _peers(status: NodeStatus, group: str) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "taskraft_peer_lag_entries",
        "Entries that a peer has not acknowledged; leader only.",
        labels=("group", "peer"),
    )
    active = GaugeMetricFamily(
        "taskraft_peer_active",
        "1 while a peer answers; leader only.",
        labels=("group", "peer"),
    )
    for member, peer in status.peers.items():
        if member != status.member_id:
            lag.add_metric((group, str(member)), peer.lag_entries)
            active.add_metric((group, str(member)), peer.is_active)
    yield lag
    yield active
