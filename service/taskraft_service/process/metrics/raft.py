"""Metrics of one Raft group, read from its member."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_replication.core.types import RaftRole
from taskraft_replication.node.status import NodeStatus
from taskraft_replication.observer import RaftCounters


class RaftMember(Protocol):
    """What the metrics need of the Raft driver."""

    def status(self) -> NodeStatus:
        """Return the member's state."""

    @property
    def counters(self) -> RaftCounters:
        """What the member has done since its start."""


class RaftCollector(Collector):
    """Reads a member when it is scraped.

    Args:
        member: the driver.
        has_leader: whether a leader is known.
        leader_changes: how many leaders were found since the start.
    """

    def __init__(
        self,
        member: RaftMember,
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

    def _counts(self, group: str) -> Iterator[Metric]:
        counters = self._member.counters
        for name, text, number in (
            (
                "taskraft_leader_changes",
                "Leaders found since the start.",
                self._leader_changes(),
            ),
            ("taskraft_log_entries", "Entries stored.", counters.entries),
            ("taskraft_log_bytes", "Bytes written to the log.", counters.log_bytes),
            ("taskraft_log_syncs", "Syncs of the log.", counters.batches),
            ("taskraft_peer_messages_sent", "Messages to peers.", counters.sent),
            ("taskraft_peer_messages_received", "Messages from peers.", counters.received),
        ):
            counter = CounterMetricFamily(name, text, labels=("group",))
            counter.add_metric((group,), number)
            yield counter


def _peers(status: NodeStatus, group: str) -> Iterator[Metric]:
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
