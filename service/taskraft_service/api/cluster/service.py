"""ClusterService: server information, cluster state, membership, leadership and snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, Final

import taskraft.v1
from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_replication.core.types import MemberId
from taskraft_replication.errors import TransferFailed
from taskraft_replication.membership.roster import find
from taskraft_replication.node.status import NodeStatus
from taskraft_service.access.caller import PermissionDenied
from taskraft_service.access.permissions import ANY_TUBE, Verb
from taskraft_service.api.cluster.member_checks import check_request_id
from taskraft_service.api.cluster.membership import MembershipChanges, RaftMember
from taskraft_service.api.cluster.settings import SettingsHandler
from taskraft_service.api.rpc.methods import (
    AnyUnaryMethod,
    ExecutionSite,
    ServerStreamHandler,
    ServiceMethods,
    UnaryCall,
    UnaryMethod,
)
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.cluster.cluster_members import ClusterMembers
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.leader.clock_keeper import ClockKeeper
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.version_keeper import UpgradeBlocked, VersionKeeper
from taskraft_service.storage.disk_monitor import DiskMonitor

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ClusterService"]
FEATURES: Final = ("feed.columns", "forwarding", "health.leader")
SERVICE_CONFIG: Final = (files(taskraft.v1) / "service_config.json").read_text()
"""gRPC service config of the contract, in JSON."""
TRANSFER_WAIT_MS: Final = 2_000
"""Maximum wait of TransferLeadership for the new leader, in ms."""


@cache
def server_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("taskraft-server")
    except PackageNotFoundError:
        return "unknown"


@dataclass(slots=True, frozen=True)
class ClusterHandlers:
    """The handlers of ClusterService that are in separate modules."""

    settings: SettingsHandler
    audit: Sequence[AnyUnaryMethod]
    record_act: Callable[[UnaryCall[Any]], Awaitable[None]]
    """Records a call of management that is no command of the log."""
    save_snapshot: ServerStreamHandler
    limits: Callable[[], Mapping[str, int]]
    """Returns the limits in force by name, for GetServerInfo."""
    disk: DiskMonitor
    snapshot_age_ms: Callable[[], int | None]
    """Returns the age of the last snapshot that this node has sent to a client; None: none."""


@dataclass(slots=True, frozen=True)
class Keepers:
    """The leader's periodic checks of all members: their wall clocks and their versions."""

    membership: MembershipChanges
    clock: ClockKeeper
    version: VersionKeeper


class ClusterService:
    """The methods of ClusterService."""

    def __init__(
        self,
        config: ServerConfig,
        raft: RaftMember,
        leadership: LeadershipTracker,
        reader: QueueReader,
        members: ClusterMembers,
        keepers: Keepers,
        handlers: ClusterHandlers,
    ) -> None:
        self._config = config
        self._raft = raft
        self._leadership = leadership
        self._reader = reader
        self._members = members
        self._clock_keeper = keepers.clock
        self._version_keeper = keepers.version
        self._handlers = handlers
        self._membership = keepers.membership

    def methods(self) -> ServiceMethods:
        """Return the methods of ClusterService."""
        return ServiceMethods(
            SERVICE,
            (
                UnaryMethod(
                    "GetServerInfo",
                    pb.GetServerInfoRequest,
                    ExecutionSite.ANY_NODE,
                    self.get_server_info,
                ),
                UnaryMethod(
                    "GetClusterState",
                    pb.GetClusterStateRequest,
                    ExecutionSite.ANY_NODE,
                    self.get_cluster_state,
                ),
                UnaryMethod(
                    "AddMember", pb.AddMemberRequest, ExecutionSite.LEADER, self.add_member
                ),
                UnaryMethod(
                    "PromoteMember",
                    pb.PromoteMemberRequest,
                    ExecutionSite.LEADER,
                    self.promote_member,
                ),
                UnaryMethod(
                    "RemoveMember", pb.RemoveMemberRequest, ExecutionSite.LEADER, self.remove_member
                ),
                UnaryMethod(
                    "TransferLeadership",
                    pb.TransferLeadershipRequest,
                    ExecutionSite.LEADER,
                    self.transfer_leadership,
                ),
                self._handlers.settings.method(),
                *self._handlers.audit,
                UnaryMethod(
                    "UpgradeCluster",
                    pb.UpgradeClusterRequest,
                    ExecutionSite.LEADER,
                    self.upgrade_cluster,
                ),
            ),
            bidirectional={},
            server_streaming={"SaveSnapshot": self._handlers.save_snapshot},
        )

    async def get_server_info(
        self, _call: UnaryCall[pb.GetServerInfoRequest]
    ) -> pb.GetServerInfoResponse:
        """Return the version, limits and features of this server."""
        return pb.GetServerInfoResponse(
            version=server_version(),
            node=self._config.node_name,
            limits=self._handlers.limits(),
            features=FEATURES,
            service_config_json=SERVICE_CONFIG,
        )

    async def get_cluster_state(
        self, call: UnaryCall[pb.GetClusterStateRequest]
    ) -> pb.GetClusterStateResponse:
        """Return the state of the cluster as this node knows it.

        Raises:
            PermissionDenied: the caller has no grant at all, so the addresses are not for it.
        """
        if call.caller.is_restricted and not call.caller.grants():
            raise PermissionDenied(call.caller.name, Verb.READ.value, ANY_TUBE)
        status = self._raft.status()
        leader = self._leadership.leader
        cluster = self._version_keeper.state
        leads = self._leadership.serves
        now_ms = self._reader.applied.now_ms + self._reader.wall_offset_ms
        return pb.GetClusterStateResponse(
            cluster_id=self._config.cluster_id,
            node=self._config.node_name,
            state=self._node_state(status, now_ms),
            leader=leader.name if leader else "",
            leader_address=leader.client_address if leader else "",
            members=[self._member(member, status) for member in self._members.all()],
            now_ms=now_ms,
            version=server_version(),
            wall_offset_ms=self._reader.wall_offset_ms,
            clock_problem=self._clock_keeper.problem,
            cluster_version=cluster.version,
            planned_cluster_version=cluster.planned,
            upgrade_blockers=self._version_keeper.decide().blockers if leads else (),
            settings=self._handlers.settings.in_force(),
        )

    def _node_state(self, status: NodeStatus, now_ms: int) -> pb.NodeState:
        age_ms = self._handlers.snapshot_age_ms()
        return pb.NodeState(
            phase=pb.NodeState.Phase.ValueType(self._leadership.phase),
            term=status.term,
            commit_index=status.commit,
            applied_index=status.applied,
            first_index=status.first,
            last_index=status.last,
            durable_index=status.durable,
            disk_free_bytes=self._handlers.disk.free_bytes,
            disk_low=self._handlers.disk.is_low,
            snapshot_ms=0 if age_ms is None else now_ms - age_ms,
        )

    def _member(self, member: PeerAddress, status: NodeStatus) -> pb.Member:
        learners = status.conf_state.learners
        suffrage = pb.Member.LEARNER if member.member_id in learners else pb.Member.VOTER
        shown = pb.Member(
            id=member.member_id,
            name=member.name,
            address=member.client_address,
            peer_address=member.peer_address,
            suffrage=suffrage,
            leader=member.member_id == self._leadership.leader_id,
            joined=_has_joined(status, member.member_id),
            wall_deviation_ms=self._clock_keeper.wall_deviations().get(MemberId(member.member_id)),
        )
        info = find(status.conf_state.roster, MemberId(member.member_id))
        shown.added_itself = info is not None and info.added_itself
        if info is not None and info.replaces:
            shown.replaces = info.replaces
            if self._leadership.serves:
                shown.replacement_problem = self._membership.replacement_problem
        spoken = self._version_keeper.versions.of(member.member_id)
        if spoken is not None:
            shown.lowest_cluster_version = spoken.lowest
            shown.highest_cluster_version = spoken.highest
        peer = status.peers.get(MemberId(member.member_id))
        if peer is not None:
            shown.match_index = peer.match
            shown.active = peer.is_active or member.member_id == status.member_id
        return shown

    async def add_member(self, call: UnaryCall[pb.AddMemberRequest]) -> pb.AddMemberResponse:
        """Add a member as a learner, or complete a member that was added before its node joined."""
        added = call.request
        member = await self._membership.add(
            added, call.caller.name, is_operator=not call.caller.is_node
        )
        await self._handlers.record_act(call)
        call.index = self._raft.status().applied
        removed = pb.Member(
            id=member,
            name=added.name,
            address=added.address,
            peer_address=added.peer_address,
            suffrage=pb.Member.LEARNER,
            joined=bool(added.directory_id),
        )
        return pb.AddMemberResponse(member=self._shown(member) or removed)

    async def promote_member(
        self, call: UnaryCall[pb.PromoteMemberRequest]
    ) -> pb.PromoteMemberResponse:
        """Make a learner a voter if its node has joined and caught up."""
        member = await self._membership.promote(call.request, call.caller.name)
        await self._handlers.record_act(call)
        call.index = self._raft.status().applied
        removed = pb.Member(
            id=member, name=call.request.name, suffrage=pb.Member.VOTER, joined=True
        )
        return pb.PromoteMemberResponse(member=self._shown(member) or removed)

    async def remove_member(
        self, call: UnaryCall[pb.RemoveMemberRequest]
    ) -> pb.RemoveMemberResponse:
        """Remove a member permanently."""
        await self._membership.remove(call.request, call.caller.name)
        await self._handlers.record_act(call)
        call.index = self._raft.status().applied
        return pb.RemoveMemberResponse()

    def _shown(self, member_id: MemberId) -> pb.Member | None:
        member = self._members.get(member_id)
        return None if member is None else self._member(member, self._raft.status())

    async def transfer_leadership(
        self, call: UnaryCall[pb.TransferLeadershipRequest]
    ) -> pb.TransferLeadershipResponse:
        """Transfer leadership to a named member, or to the most advanced follower.

        Followers with a right wall clock are preferred. A named member with a wrong wall clock is
        refused while another voter with a right clock can lead. A learner, or a member that does
        not answer, is refused before the leader stops serving.
        """
        check_request_id(call.request.request_id, call.request.client_id)
        target = self._target(call.request.name)
        if target == self._leadership.leader_id:
            return pb.TransferLeadershipResponse(leader=call.request.name)
        if target is None:
            target = self._clock_keeper.successor()
        else:
            self._check_can_lead(target, call.request.name)
            self._check_clock(target, call.request.name)
        # Record the transfer before it, because this node does not lead afterwards.
        await self._handlers.record_act(call)
        try:
            await self._leadership.transfer(lambda: self._raft.transfer_leadership(target))
        except TransferFailed as error:
            # No node may repeat the call by itself: each attempt stops the service.
            raise CallRefused(error_pb2.Error.WRONG_STATE, str(error)) from error
        until = asyncio.get_running_loop().time() + TRANSFER_WAIT_MS / 1000
        await self._leadership.wait_until_settled(until)
        leader = self._leadership.leader
        return pb.TransferLeadershipResponse(leader=leader.name if leader else "")

    async def upgrade_cluster(
        self, call: UnaryCall[pb.UpgradeClusterRequest]
    ) -> pb.UpgradeClusterResponse:
        """Raise the cluster version now, if all members can."""
        check_request_id(call.request.request_id, call.request.client_id)
        try:
            version = await self._version_keeper.upgrade()
        except UpgradeBlocked as error:
            raise CallRefused(
                error_pb2.Error.VERSION_TOO_LOW, str(error), {"version": str(error.version)}
            ) from error
        await self._handlers.record_act(call)
        call.index = self._raft.status().applied
        return pb.UpgradeClusterResponse(cluster_version=version)

    def _check_can_lead(self, target: MemberId, name: str) -> None:
        peer = self._raft.status().peers.get(target)
        if peer is None or (peer.is_active and not peer.is_learner):
            return
        why = "it is a learner" if peer.is_learner else "it does not answer"
        raise CallRefused(
            error_pb2.Error.WRONG_STATE,
            f'member "{name}" cannot lead, because {why}',
            {"name": name},
        )

    def _check_clock(self, target: MemberId, name: str) -> None:
        lead_ms = self._clock_keeper.wrong_clock_of(target)
        if lead_ms is None:
            return
        where = "ahead of" if lead_ms > 0 else "behind"
        raise CallRefused(
            error_pb2.Error.WRONG_STATE,
            f'the wall clock of member "{name}" is {abs(lead_ms)} ms {where} those of a majority;'
            " set the clock, or transfer the leadership to another member",
            {"name": name, "deviation_ms": str(lead_ms)},
        )

    def _target(self, name: str) -> MemberId | None:
        if not name:
            return None
        member = self._members.named(name)
        if member is not None:
            return MemberId(member.member_id)
        raise CallRefused(
            error_pb2.Error.MEMBER_NOT_FOUND, f'there is no member "{name}"', {"name": name}
        )


def _has_joined(status: NodeStatus, member_id: int) -> bool:
    info = find(status.conf_state.roster, MemberId(member_id))
    return info is not None and bool(info.directory_id)
