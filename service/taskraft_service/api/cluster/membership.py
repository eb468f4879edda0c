"""Change the members of the cluster: add, promote and remove, one at a time, on the leader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, NoReturn, Protocol

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_replication.core.confchange import ConfChange, MemberChangeKind
from taskraft_replication.core.errors import ProposalDropped
from taskraft_replication.core.types import ConfState, MemberId, MemberInfo, Roster
from taskraft_replication.errors import ChangeRefused, NotRaftLeader, ProposalLost, TransferFailed
from taskraft_replication.membership.roster import change_of, made_before, removal_of
from taskraft_replication.node.status import NodeStatus
from taskraft_service.api.cluster.checks import (
    check_add_member,
    check_caught_up,
    check_request_id,
    refused_without_quorum,
)
from taskraft_service.api.rpc.status import RETRY_DELAY_MS, CallRefused
from taskraft_service.leader.command_submitter import OutcomeUnknown
from taskraft_service.leader.leadership import LeadershipTracker

MEMBERS_MAX: Final = 15
"""Maximum number of members, learners included; the leader sends every entry to each of them."""

ANSWER_WAIT_MS: Final = 1_000
ANSWER_PAUSE_MS: Final = 20
"""Maximum wait for answers of the other voters and the interval between checks, in ms."""


class RaftMember(Protocol):
    """The Raft member of this node."""

    def status(self) -> NodeStatus:
        """Return the state of the member."""

    async def change_membership(self, change: ConfChange) -> ConfState:
        """Commit a membership change; return the new configuration."""

    async def transfer_leadership(self, to: MemberId | None = None) -> None:
        """Transfer leadership, to the most advanced follower if ``to`` is None."""


class MembershipChanges:
    """The membership changes, called on the leader only.

    A lock serializes the changes of this node, and Raft serializes changes of two leaders. The
    roster stores the last changes by request_id, so a retry gets its first answer on any leader.
    """

    def __init__(self, cluster_id: str, raft: RaftMember, leadership: LeadershipTracker) -> None:
        self._cluster_id = cluster_id
        self._raft = raft
        self._leadership = leadership
        self._changing = asyncio.Lock()

    async def add(self, request: pb.AddMemberRequest) -> MemberId:
        """Add a member as a learner, or complete a member that was added before its node joined."""
        check_add_member(request, self._cluster_id)
        wanted = MemberInfo(
            MemberId(0), request.name, request.peer_address, request.address, request.directory_id
        )
        key = _key("add", request.name, request.request_id)
        async with self._changing:
            roster = self._roster
            made = made_before(roster, key)
            if made is not None:
                return made
            known = _named(roster, request.name)
            if known is None:
                return await self._add_new(roster, wanted, key)
            if known.directory_id and known.directory_id != request.directory_id:
                raise CallRefused(
                    error_pb2.Error.MEMBER_EXISTS,
                    f'"{known.name}" is member {known.member}, which has another data directory; '
                    f"remove that member before you add a new one with this name",
                    {"name": known.name, "member": str(known.member)},
                )
            info = replace(wanted, member=known.member)
            if info != known:
                await self._change(change_of(MemberChangeKind.UPDATE, info, key))
            return known.member

    async def _add_new(self, roster: Roster, wanted: MemberInfo, key: str) -> MemberId:
        if len(roster.members) >= MEMBERS_MAX:
            raise CallRefused(
                error_pb2.Error.LIMIT_REACHED,
                f"a cluster has at most {MEMBERS_MAX} members",
                {"limit": str(MEMBERS_MAX)},
            )
        info = replace(wanted, member=MemberId(roster.last_member + 1))
        await self._change(change_of(MemberChangeKind.ADD_LEARNER, info, key))
        return info.member

    async def promote(self, request: pb.PromoteMemberRequest) -> MemberId:
        """Make a learner a voter if its node has joined and caught up."""
        check_request_id(request.request_id)
        key = _key("promote", request.name, request.request_id)
        async with self._changing:
            made = made_before(self._roster, key)
            if made is not None:
                return made
            info = self._member(request.name)
            status = self._raft.status()
            if info.member in status.conf_state.voters:
                return info.member
            check_caught_up(status, info)
            await self._change(change_of(MemberChangeKind.ADD_VOTER, info, key))
            return info.member

    async def remove(self, request: pb.RemoveMemberRequest) -> None:
        """Remove a member permanently.

        Raises:
            NotLeader: the leader itself was to go, and has handed over: its successor removes it.
        """
        check_request_id(request.request_id)
        key = _key("remove", request.name, request.request_id)
        async with self._changing:
            if made_before(self._roster, key) is not None:
                return
            member = self._member(request.name).member
            await self._check_quorum_without(member)
            if member == self._raft.status().member_id:
                await self._hand_over()
            await self._change(removal_of(member, key))

    async def _hand_over(self) -> NoReturn:
        try:
            await self._leadership.transfer(self._raft.transfer_leadership)
        except TransferFailed as error:
            raise CallRefused(error_pb2.Error.NO_LEADER, str(error)) from error
        raise NotRaftLeader(self._leadership.leader_id)

    async def _check_quorum_without(self, member: MemberId) -> None:
        """Check that a majority of the remaining voters answers; wait briefly for them.

        Raises:
            CallRefused: MEMBER_NEEDED.
        """
        until = asyncio.get_running_loop().time() + ANSWER_WAIT_MS / 1000
        while (refused := refused_without_quorum(self._raft.status(), member)) is not None:
            if asyncio.get_running_loop().time() > until:
                raise refused
            # A new leader has not heard from all voters yet.
            await asyncio.sleep(ANSWER_PAUSE_MS / 1000)

    @property
    def _roster(self) -> Roster:
        return self._raft.status().conf_state.roster

    def _member(self, name: str) -> MemberInfo:
        info = _named(self._roster, name)
        if info is None:
            raise CallRefused(
                error_pb2.Error.MEMBER_NOT_FOUND, f'there is no member "{name}"', {"name": name}
            )
        return info

    async def _change(self, change: ConfChange) -> None:
        try:
            await self._raft.change_membership(change)
        except (ChangeRefused, ProposalDropped) as error:
            raise CallRefused(
                error_pb2.Error.MEMBERS_CHANGING,
                f"the members cannot be changed now: {error}; retry",
                retry_ms=RETRY_DELAY_MS,
            ) from error
        except ProposalLost as error:
            raise OutcomeUnknown(str(error)) from error


def _key(verb: str, name: str, request_id: str) -> str:
    """Return the key of a request in the roster; empty without a request_id."""
    return f"{verb} {name} {request_id}" if request_id else ""


def _named(roster: Roster, name: str) -> MemberInfo | None:
    return next((info for info in roster.members if info.name == name), None)
