"""Build the objects of one node, from the Raft driver to the gRPC calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

from prometheus_client import CollectorRegistry

from taskraft_replication.core.types import LogIndex, MemberId
from taskraft_replication.membership.roster import find
from taskraft_replication.node.node import Node
from taskraft_service.access.security import NodeSecurity
from taskraft_service.api.cluster.membership import MembershipChanges
from taskraft_service.api.health import Health
from taskraft_service.api.rpc.call_load import CallLoad
from taskraft_service.api.rpc.endpoint import GrpcEndpoint
from taskraft_service.api.rpc.forwarding import Forwarder
from taskraft_service.api.rpc.live_calls import LiveCalls, PrincipalShares, share_of
from taskraft_service.api.state.lease_returns import LeaseReturns
from taskraft_service.api.streams.subscribe import SubscriptionRegistry
from taskraft_service.api.tasks.waiting_take import WaitingTakes
from taskraft_service.clock.cluster_clock import SYSTEM_CLOCKS, NodeClocks
from taskraft_service.clock.group_clock import GroupClock
from taskraft_service.cluster.cluster_members import ClusterMembers
from taskraft_service.cluster.effective_settings import EffectiveSettings
from taskraft_service.cluster.member_identity import GROUP_ID, MemberIdentity
from taskraft_service.cluster.member_versions import MemberVersions
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.leader.bulk_runner import BulkRunner
from taskraft_service.leader.capacity_waiters import CapacityWaiters
from taskraft_service.leader.clock_keeper import ClockKeeper
from taskraft_service.leader.housekeeping import Housekeeping
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.lifecycle import LeaderLifecycle, LeaderSettings
from taskraft_service.leader.node_phases import PhaseMachine
from taskraft_service.leader.outcome_waits import OutcomeWaits
from taskraft_service.leader.pending import ProposerLimits
from taskraft_service.leader.proposer import Proposer
from taskraft_service.leader.raft_group import RaftGroup
from taskraft_service.leader.revoked_sessions import RevokedSessions
from taskraft_service.leader.scheduler import Scheduler
from taskraft_service.leader.temporary.command_router import CommandRouter
from taskraft_service.leader.temporary.temporary_tubes import TemporaryTubes
from taskraft_service.leader.unlogged_calls import UnloggedCalls
from taskraft_service.leader.version_keeper import VersionKeeper
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.apply_notifier import ApplyNotifier
from taskraft_service.machine.driver_agreement import DriverAgreement, JoinedBeacons
from taskraft_service.machine.failure_counter import FailureCounter
from taskraft_service.machine.feed_waits import FeedWaits
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.state_comparison import StateComparison
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.machine.tube_sampler import TubeSampler
from taskraft_service.process.damage_response import DamageResponse
from taskraft_service.process.damaged_copies import DamagedCopies
from taskraft_service.process.descriptors import current_shares
from taskraft_service.process.loop_runs import LoopRuns
from taskraft_service.process.member_replacement import is_replaced_after
from taskraft_service.process.metrics.entries import EntryDistributions, EntryHistograms
from taskraft_service.process.metrics.saved_snapshots import SavedSnapshots
from taskraft_service.process.scrubbing import build_scrubber
from taskraft_service.process.state_digests import StateDigests
from taskraft_service.storage.directory import STATE_DIRECTORY
from taskraft_service.storage.disk_monitor import DiskMonitor
from taskraft_service.storage.state_scrub import UnknownTables


class NodeComponents:
    """The components of a node between its driver and its gRPC server.

    Args:
        config: settings of the node.
        identity: identity of this node in its cluster.
        node: the Raft member.
        machine: state machine of the queue.
        security: certificates and access control.
        clocks: the clocks of the node.
        bug_found: called with each unexpected exception of a call.
    """

    def __init__(
        self,
        config: ServerConfig,
        identity: MemberIdentity,
        node: Node,
        machine: QueueMachine,
        security: NodeSecurity,
        clocks: NodeClocks = SYSTEM_CLOCKS,
        bug_found: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.clocks = clocks
        self.node = node
        self.machine = machine
        configured = identity.founders or (identity.member,)
        self.members = ClusterMembers(lambda: node.roster, configured, node.roster_at_start)
        self.security = security
        self.registry = CollectorRegistry()
        self.loop_runs = LoopRuns()
        self.saved_snapshots = SavedSnapshots(clocks.monotonic_ms)
        self.registry.register(self.saved_snapshots)
        self.distributions = EntryDistributions(
            EntryHistograms(self.registry), node.status().group_id
        )
        member_id = MemberId(identity.member.member_id)
        group = RaftGroup(
            lambda: node.membership, lambda: self.leadership.lead_term, lambda: machine.queue
        )
        self.clock = GroupClock(member_id, group, clocks.wall_ms, clocks.monotonic_ms)
        self.member_versions = MemberVersions(member_id, clocks.monotonic_ms)
        damage = self._make_checks(member_id, group)
        node.beacons = JoinedBeacons(
            self.clock,
            DriverAgreement(member_id, group, machine),
            self.member_versions,
            self.comparison,
        )
        self._wall_offset_ms = machine.queue.wall_offset_ms
        self.phases = PhaseMachine()
        self.settings = EffectiveSettings(config, partial(attrgetter("queue.settings"), machine))
        self.disk = DiskMonitor(config.data_dir, config.disk_low_bytes, clocks.monotonic_ms)
        shares = PrincipalShares(
            share_of(config.calls_max, config.calls_share_max),
            share_of(config.streams_max, config.streams_share_max),
            share_of(current_shares().client_connections, config.connections_share_max),
        )
        live = LiveCalls(shares)
        if security.principals is not None:
            security.principals.listen(live.principals_changed)
        self.load = CallLoad(config.calls_max, config.streams_max, config.call_bytes_max, live)
        self.streams = SubscriptionRegistry(self.load)
        self.apply_notifier = ApplyNotifier()
        self.feed_waits = FeedWaits(lambda: self.machine.queue.feed)
        self._make_waits()
        self._make_leadership(member_id)
        self.endpoint = GrpcEndpoint(self.forwarder, self.load, bug_found, damage.damage_met)
        self.health = Health()
        self._listen()

    def _make_checks(self, member_id: MemberId, group: RaftGroup) -> DamageResponse:
        """Build the objects that find damage and wrong states, and what reacts to damage."""
        config, node, machine, clocks = self.config, self.node, self.machine, self.clocks
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        self.digests = StateDigests(machine.view_at, self._digests_computed, node.fail, call_soon)
        self.comparison = StateComparison(
            member_id,
            group,
            lambda: machine.applied_index,
            self.digests.begin,
            config.compare_period_ms,
            clocks.monotonic_ms,
            node.fail,
        )
        copies = DamagedCopies(config.data_dir, (STATE_DIRECTORY, f"raft-{GROUP_ID}"))
        self.comparison.agreed = copies.state_agreed
        machine.state_received = self.comparison.state_received
        damage = DamageResponse(node, partial(is_replaced_after, config))
        machine.report_damage = lambda found: call_soon(damage.damage_found, found)
        self.unknown_tables = UnknownTables()
        self.scrubber = build_scrubber(
            config, node, machine, self.unknown_tables, clocks.wall_ms, damage
        )
        return damage

    def _make_waits(self) -> None:
        """Build the proposer and the objects that wait for applied commands."""
        machine = self.machine
        self.queues = QueueLocator(lambda: machine.queue)
        self.waiters = Waiters(self.queues)
        self.proposer = Proposer(
            self.node,
            machine,
            self.clock.cluster,
            self.waiters,
            self.distributions,
            _proposer_limits(self.config),
            self.clocks.timer_ms_max,
        )
        self.temporary = TemporaryTubes(
            self.queues,
            self.clock,
            self.waiters,
            self.config.temporary_bytes_max,
            machine.queue.drivers,
            self.node.fail,
            self.clocks.timer_ms_max,
        )
        self.router = CommandRouter(
            self.proposer,
            self.temporary,
            self.queues.refusal_by_trial if machine.queue.drivers else None,
        )
        self.waiters.listen(self.router.wake)
        self.scheduler = Scheduler(
            lambda: machine.queue,
            self.proposer,
            self.wall_now_ms,
            has_room=lambda: not self.disk.is_low,
            timer_ms_max=self.clocks.timer_ms_max,
        )
        self.bulk_runner = BulkRunner(
            lambda: machine.queue, self.router, self.security.refusal_of_bulk_sweep
        )
        self.revoked_sessions = RevokedSessions(self.queues, self.router, self.security.may_take)
        if self.security.principals is not None:
            self.security.principals.listen(self.revoked_sessions.principals_changed)
        self.outcomes = OutcomeWaits(self.queues)
        self.sampler = TubeSampler(self.queues, self.wall_now_ms)
        self.failure_counter = FailureCounter(self.queues, self.wall_now_ms)
        self.capacity_waiters = CapacityWaiters(self.queues)

    def _make_leadership(self, member_id: MemberId) -> None:
        """Build the objects that depend on the leader."""
        config = self.config
        self.unlogged_calls = UnloggedCalls(lambda: self.phases.serves)
        self.housekeeping = Housekeeping(
            self.router,
            self.machine,
            self.unlogged_calls,
            self.settings,
            self.temporary,
            self.node.end_leadership,
        )
        self.clock_keeper = ClockKeeper(
            self.clock,
            self.node,
            self.router,
            lambda: self.machine.queue.wall_offset_ms,
            self.clocks.monotonic_ms,
        )
        self.version_keeper = VersionKeeper(
            self.member_versions,
            self.members,
            self.settings,
            lambda: self.machine.queue,
            self.router,
            self.clock.now_ms,
        )
        self.lifecycle = LeaderLifecycle(
            LeaderSettings(member_id, config.failover_grace_ms, config.feed_partitions),
            self.proposer,
            self.temporary,
            self.machine,
            (WaitingTakes(self.waiters), self.outcomes, self.capacity_waiters),
            self.streams,
            self.housekeeping,
            self.clock_keeper,
        )
        self.leadership = LeadershipTracker(self.phases, member_id, self.members, self.lifecycle)
        self.membership = MembershipChanges(
            config.cluster_id,
            self.node,
            self.leadership,
            self.version_keeper,
            None if config.access_file is None else config.admitted_names,
        )
        # Election timeouts are drawn up to twice the minimum.
        self.forwarder = Forwarder(
            self.leadership,
            2 * config.election_timeout_ms,
            self.security.peer,
            partial(self._has_added_itself, member_id),
        )
        self.lease_returns = LeaseReturns(self.router, self.forwarder)

    def _has_added_itself(self, member_id: MemberId) -> bool:
        own = find(self.node.membership.roster, member_id)
        return own is not None and own.added_itself

    def _listen(self) -> None:
        """Register the listeners for applied entries and for phase changes."""
        machine = self.machine
        machine.listen(self._entries_applied)
        machine.listen_to_news(self._serve_woken)
        machine.listen_to_news(self.temporary.applied)
        machine.listen_to_news(self.scheduler.applied)
        machine.listen_to_news(self.outcomes.applied)
        self.temporary.listen(self.outcomes.applied)
        self.temporary.listen(self.capacity_waiters.applied)
        self.phases.listen(lambda phase: self.lifecycle.phase_changed(phase, self.leadership))
        self.phases.listen(self.scheduler.phase_changed)
        self.phases.listen(self.bulk_runner.phase_changed)
        if self.security.principals is not None:
            self.phases.listen(self.revoked_sessions.phase_changed)

    def _entries_applied(self, now_ms: int) -> None:
        self.clock.cluster.applied(now_ms)
        if self.apply_notifier.waiting:
            self.apply_notifier.applied(now_ms)
        if self.feed_waits.waiting:
            self.feed_waits.applied(now_ms)
        if self.capacity_waiters.count:
            self.capacity_waiters.applied(now_ms)
        queue = self.machine.queue
        if queue.open_bulk_sweeps:
            self.bulk_runner.applied(now_ms)
        if self._wall_offset_ms != queue.wall_offset_ms:
            self._wall_offset_ms = queue.wall_offset_ms
            self.scheduler.wall_time_changed()

    def _digests_computed(self, index: LogIndex, version: int, parts: Sequence[int]) -> None:
        self.comparison.computed(index, version, parts)

    def wall_now_ms(self) -> int:
        """Return the wall time of the cluster, in ms since the Unix epoch."""
        return self.clock.now_ms() + self.machine.queue.wall_offset_ms

    def _serve_woken(self, _now_ms: int) -> None:
        """Serve consumers of tubes whose tasks became ready because other tasks changed."""
        for tube in self.machine.queue.woken_tubes():
            self.waiters.expect_ready(tube, 0)
            self.proposer.wake()


def _proposer_limits(config: ServerConfig) -> ProposerLimits:
    return ProposerLimits(
        entry_bytes=config.entry_bytes_max,
        entry_commands=config.entry_commands_max,
        entries_in_flight=config.entries_in_flight_max,
        pending_commands=config.pending_commands_max,
        pending_bytes=config.pending_bytes_max,
    )
