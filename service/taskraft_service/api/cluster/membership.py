"""Check and change the members of the cluster: add, promote and remove, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NoReturn, Protocol, TypeVar

import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import error_pb2
from taskraft_replication.core.confchange import ConfChange, MemberChangeKind
from taskraft_replication.core.errors import ProposalDropped
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import ConfState, LogIndex, MemberId, MemberInfo, Roster
from taskraft_replication.errors import (
    ChangeRefused,
    NotRaftLeader,
    ProposalLost,
    ReadUnconfirmed,
    ReplicationError,
    TransferFailed,
)
from taskraft_replication.membership.roster import (
    change_of,
    is_named,
    made_before,
    may_add_itself,
    removal_of,
    was_node_removed,
)
from taskraft_replication.node.replacement import (
    LAG_ENTRIES_MAX,
    ReplacementFault,
    ReplacementRefusal,
    addition_of,
    completion_of,
    pending_replacement,
)
from taskraft_replication.node.status import NodeStatus
from taskraft_service.api.cluster.member_checks import (
    check_add_member,
    check_remove_member,
    check_request_id,
    check_spoken_versions,
)
from taskraft_service.api.rpc.status import RETRY_DELAY_MS, CallRefused
from taskraft_service.languages.patterns import PatternSet
from taskraft_service.leader.command_submitter import OutcomeUnknown
from taskraft_service.leader.leadership import LeadershipTracker
from taskraft_service.leader.version_keeper import VersionKeeper
from taskraft_service.queue.store.idempotency import request_scope

MEMBERS_MAX: Final = 15
"""Maximum number of members, learners included; the leader sends every entry to each of them."""

CHECK_MS: Final = 500
"""Interval between two attempts to complete a replacement, in ms."""

ANSWER_WAIT_MS: Final = 1_000
ANSWER_PAUSE_MS: Final = 20
"""Maximum wait for answers of the other voters and the interval between checks, in ms."""

log: Final = structlog.get_logger(__name__)

Allowed = TypeVar("Allowed")

_REASONS: Final[Mapping[ReplacementFault, error_pb2.Error.Reason.ValueType]] = {
    ReplacementFault.NOT_A_MEMBER: error_pb2.Error.MEMBER_NOT_FOUND,
    ReplacementFault.STILL_ACTIVE: error_pb2.Error.MEMBER_EXISTS,
    ReplacementFault.OTHER_REPLACEMENT: error_pb2.Error.MEMBERS_CHANGING,
    ReplacementFault.CHANGE_UNDER_WAY: error_pb2.Error.MEMBERS_CHANGING,
    ReplacementFault.OTHERS_NOT_WHOLE: error_pb2.Error.MEMBER_NEEDED,
    ReplacementFault.NEW_MEMBER_BEHIND: error_pb2.Error.NODE_BEHIND,
}


class RaftMember(Protocol):
    """The Raft member of this node."""

    def status(self) -> NodeStatus:
        """Return the state of the member."""

    async def change_membership(self, change: ConfChange) -> ConfState:
        """Commit a membership change; return the new configuration."""

    async def transfer_leadership(self, to: MemberId | None = None) -> None:
        """Transfer leadership, to the most advanced follower if ``to`` is None."""

    async def read_index(self) -> LogIndex:
        """Send a heartbeat to all members, and wait until a majority has answered."""


class MembershipChanges:
    """The membership changes, called on the leader only.

    A lock serializes the changes of this node, and Raft serializes changes of two leaders. The
    roster stores the last changes by request_id, so a retry gets its first answer on any leader.

    Args:
        cluster_id: id of the cluster.
        raft: the Raft member of this node.
        leadership: tracks the leader.
        version_keeper: knows the cluster version in force. A raise waits for a change of the
            members, and a change waits for a raise.
        admits: patterns of the names of nodes that may add themselves with their certificates;
            None: every node may, because callers have no grants.
    """

    def __init__(
        self,
        cluster_id: str,
        raft: RaftMember,
        leadership: LeadershipTracker,
        version_keeper: VersionKeeper,
        admits: Sequence[str] | None = None,
    ) -> None:
        self._cluster_id = cluster_id
        self._raft = raft
        self._leadership = leadership
        self._admits = None if admits is None else PatternSet(admits)
        self._version_keeper = version_keeper
        self._changing = version_keeper.changing
        self.replacement_problem = ""
        """Reason for which the last attempt to complete a replacement failed; empty: no problem."""

    async def add(
        self, request: pb.AddMemberRequest, principal: str, *, is_operator: bool
    ) -> MemberId:
        """Add a member as a learner, or complete a member that was added before its node joined.

        Args:
            request: the request.
            principal: name of the caller.
            is_operator: False: the node asks for itself, and nothing but its certificate proves it.

        Raises:
            CallRefused: INVALID_FIELD, NOT_ALLOWED or a reason of ``addition_to``.
        """
        check_add_member(request, self._cluster_id)
        wanted = member_info(request)
        key = _key("add", request, principal)
        async with self._changing:
            check_spoken_versions(request, self._version_keeper.state.version)
            if request.replaces_member:
                return await self._replace(wanted, MemberId(request.replaced_id))
            roster = self._roster
            if not is_operator:
                self._check_admitted(roster, wanted.name)
                wanted = replace(wanted, added_itself=True)
            member, change = addition_to(roster, wanted, key)
            if change is not None:
                await self._change(change)
            return member

    def _check_admitted(self, roster: Roster, name: str) -> None:
        """Check that a node may ask for its membership itself.

        Raises:
            CallRefused: NOT_ALLOWED.
        """
        if self._admits is None or any(is_named(info, name) for info in roster.members):
            return
        if may_add_itself(roster, name) and self._admits.matches(name):
            return
        why = "was removed" if was_node_removed(roster, name) else "was never admitted"
        raise CallRefused(
            error_pb2.Error.NOT_ALLOWED,
            f'node "{name}" {why}; an operator must add it first: `taskraft cluster add {name} '
            f"PEER_ADDRESS ADDRESS`",
            {"name": name},
        )

    async def promote(self, request: pb.PromoteMemberRequest, principal: str) -> MemberId:
        """Make a learner a voter if its node has joined and caught up."""
        check_request_id(request.request_id, request.client_id)
        key = _key("promote", request, principal)
        async with self._changing:
            made = made_before(self._roster, key)
            if made is not None:
                return made
            info = self._member(request.name)
            status = self._raft.status()
            if info.member in status.conf_state.voters:
                return info.member
            if info.replaces:
                await self._change(_allowed(completion_of(status, info), info.name))
                return info.member
            check_caught_up(status, info)
            await self._change(change_of(MemberChangeKind.ADD_VOTER, info, key))
            return info.member

    async def remove(self, request: pb.RemoveMemberRequest, principal: str) -> None:
        """Remove a member permanently.

        Raises:
            CallRefused: INVALID_FIELD, MEMBER_NOT_FOUND, MEMBER_NEEDED or MEMBERS_CHANGING.
            NotLeader: the leader was asked to remove itself and has transferred its leadership; the
                new leader removes it.
        """
        check_remove_member(request)
        key = _key("remove", request, principal)
        async with self._changing:
            if made_before(self._roster, key) is not None:
                return
            member = self._member(request.name, request.directory_id).member
            namesakes = [each for each in self._roster.members if each.name == request.name]
            for each in namesakes:
                await self._check_quorum_without(each.member)
            if member == self._raft.status().member_id:
                await self._hand_over()
            await self._change(removal_of([each.member for each in namesakes], key))

    async def run_periodically(self) -> None:
        """Complete replacements while this node leads, until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_MS / 1_000)
            if not self._leadership.serves:
                continue
            try:
                await self.complete_replacement()
            except (CallRefused, OutcomeUnknown, ReplicationError) as error:
                log.info("replacement of a member postponed", reason=str(error))

    async def complete_replacement(self) -> None:
        """Promote the learner that replaces a voter, and remove the voter, if that can be done now.

        Raises:
            CallRefused: a change of the members failed.
            NotRaftLeader, OutcomeUnknown: the leadership was lost.
        """
        async with self._changing:
            status = self._raft.status()
            new = pending_replacement(status.conf_state.roster)
            if new is None:
                self._tell("")
                return
            decided = completion_of(status, new)
            if isinstance(decided, ReplacementRefusal):
                self._tell(decided.text)
                return
            await self._change(decided)
            self._tell("")
            log.warning("member replaced", name=new.name, old=new.replaces, new=new.member)

    def _tell(self, problem: str) -> None:
        """Log why a replacement waits, when the reason changes."""
        kind = problem.partition(":")[0]
        if problem and kind != self.replacement_problem.partition(":")[0]:
            log.info("replacement of a member waits", reason=problem)
        self.replacement_problem = problem

    async def _replace(self, wanted: MemberInfo, replaced: MemberId) -> MemberId:
        addition = _allowed(addition_of(self._raft.status(), wanted, replaced), wanted.name)
        if addition.change is not None:
            await self._change(addition.change)
            log.warning("a new member replaces a lost one", name=wanted.name, new=addition.member)
        return addition.member

    async def _hand_over(self) -> NoReturn:
        try:
            await self._leadership.transfer(self._raft.transfer_leadership)
        except TransferFailed as error:
            # No node may repeat the call by itself: each attempt stops the service.
            raise CallRefused(error_pb2.Error.WRONG_STATE, str(error)) from error
        raise NotRaftLeader(self._leadership.leader_id)

    async def _check_quorum_without(self, member: MemberId) -> None:
        """Check that a majority of the remaining voters answers now; wait briefly for them.

        Earlier answers do not count: two members may stop at the same time, and only one of them
        asks to be removed.

        Raises:
            CallRefused: MEMBER_NEEDED.
        """
        before = self._raft.status()
        with suppress(ReadUnconfirmed):  # then too few voters answer, which is refused below
            await self._raft.read_index()
        until = asyncio.get_running_loop().time() + ANSWER_WAIT_MS / 1000
        while (refused := refused_without_quorum(self._raft.status(), member, before)) is not None:
            if asyncio.get_running_loop().time() > until:
                raise refused
            await asyncio.sleep(ANSWER_PAUSE_MS / 1000)

    @property
    def _roster(self) -> Roster:
        return self._raft.status().conf_state.roster

    def _member(self, name: str, directory_id: str = "") -> MemberInfo:
        """Return the member of a name, with a data directory if ``directory_id`` is not empty.

        Raises:
            CallRefused: MEMBER_NOT_FOUND.
        """
        info = _named(self._roster, name)
        if info is None or directory_id not in ("", info.directory_id):
            directory = f" with data directory {directory_id}" if directory_id else ""
            raise CallRefused(
                error_pb2.Error.MEMBER_NOT_FOUND,
                f'there is no member "{name}"{directory}',
                {"name": name},
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


def _key(
    verb: str,
    request: pb.AddMemberRequest | pb.PromoteMemberRequest | pb.RemoveMemberRequest,
    principal: str,
) -> str:
    """Return the key of a request in the roster; empty without a request_id."""
    if not request.request_id:
        return ""
    scope = request_scope(principal, request.client_id)
    return f"{verb} {request.name} {scope}{request.request_id}"


def _allowed(decided: Allowed | ReplacementRefusal, name: str) -> Allowed:
    """Return the change of a replacement, unless the replacement was refused.

    Raises:
        CallRefused: the replacement was refused.
    """
    if not isinstance(decided, ReplacementRefusal):
        return decided
    reason = _REASONS[decided.fault]
    retry_ms = RETRY_DELAY_MS if reason is error_pb2.Error.MEMBERS_CHANGING else 0
    metadata = {"name": name, "fault": decided.fault.value}
    raise CallRefused(reason, decided.text, metadata, retry_ms=retry_ms)


def _named(roster: Roster, name: str) -> MemberInfo | None:
    """Return the member with a name, or None; during a replacement, return the new member."""
    return next((info for info in reversed(roster.members) if info.name == name), None)


def member_info(request: pb.AddMemberRequest) -> MemberInfo:
    """Return the member that a request names; it has no id yet."""
    return MemberInfo(
        MemberId(0), request.name, request.peer_address, request.address, request.directory_id
    )


def addition_to(roster: Roster, wanted: MemberInfo, key: str) -> tuple[MemberId, ConfChange | None]:
    """Return the id of the member to add, and the change that adds it; None: no change is needed.

    ``key`` identifies the request, so that a repeated request gets the id of the first one. A
    request of an operator that names no directory admits a member that has added itself.

    Raises:
        CallRefused: MEMBER_EXISTS or LIMIT_REACHED.
    """
    made = made_before(roster, key)
    if made is not None:
        return made, None
    same = (each for each in roster.members if _is_same(each, wanted))
    known = next(same, None) or _named(roster, wanted.name)
    if known is None:
        if len(roster.members) >= MEMBERS_MAX:
            raise CallRefused(
                error_pb2.Error.LIMIT_REACHED,
                f"a cluster has at most {MEMBERS_MAX} members",
                {"limit": "members_max", "value": str(MEMBERS_MAX)},
            )
        info = replace(wanted, member=MemberId(roster.last_member + 1))
        return info.member, change_of(MemberChangeKind.ADD_LEARNER, info, key)
    admitted = replace(known, added_itself=known.added_itself and wanted.added_itself)
    if known.directory_id and not wanted.directory_id and admitted != known:
        return known.member, change_of(MemberChangeKind.UPDATE, admitted, key)
    if known.directory_id and known.directory_id != wanted.directory_id:
        raise CallRefused(
            error_pb2.Error.MEMBER_EXISTS,
            f'"{known.name}" is member {known.member}, which has another data directory; '
            f"remove that member before you add a new one with this name",
            {"name": known.name, "member": str(known.member)},
        )
    info = replace(
        wanted,
        member=known.member,
        replaces=known.replaces,
        added_itself=admitted.added_itself,
    )
    change = None if info == known else change_of(MemberChangeKind.UPDATE, info, key)
    return known.member, change


def _is_same(known: MemberInfo, wanted: MemberInfo) -> bool:
    """Return whether a member has the name and the data directory of a node."""
    is_named = known.name == wanted.name
    return is_named and bool(known.directory_id) and known.directory_id == wanted.directory_id


def check_caught_up(status: NodeStatus, info: MemberInfo) -> None:
    """Check that a learner has caught up and can take part in the next commit.

    Raises:
        CallRefused: NODE_BEHIND.
    """
    progress = status.peers.get(info.member)
    lag = status.last if progress is None else progress.lag_entries
    answers = progress is not None and progress.is_active
    follows = progress is not None and progress.state is ProgressState.REPLICATE
    if not info.directory_id or not answers or not follows or lag > LAG_ENTRIES_MAX:
        state = f"{lag} entries behind" if follows else "not following the log yet"
        state = state if answers else "not answering"
        state = state if info.directory_id else "not started: its node has not joined"
        raise CallRefused(
            error_pb2.Error.NODE_BEHIND,
            f'"{info.name}" is {state}: it must catch up before it votes',
            {"name": info.name, "lag_entries": str(lag)},
        )


def refused_without_quorum(
    status: NodeStatus, member: MemberId, before: NodeStatus
) -> CallRefused | None:
    """Return the refusal to remove ``member`` if the other voters would have no quorum.

    A voter counts if it has answered since the status ``before``.
    """
    if member not in status.conf_state.voters:
        return None
    rest = [voter for voter in status.conf_state.voters if voter != member]
    answering = [voter for voter in rest if _has_answered(status, voter, before)]
    if 2 * len(answering) > len(rest):
        return None
    return CallRefused(
        error_pb2.Error.MEMBER_NEEDED,
        f"only {len(answering)} of the {len(rest)} remaining voters answer: "
        f"the cluster would lose its quorum; restore other voters first",
        {"voters": str(len(rest)), "answering": str(len(answering))},
    )


def _has_answered(status: NodeStatus, member: MemberId, before: NodeStatus) -> bool:
    peer, earlier = status.peers.get(member), before.peers.get(member)
    if member == status.member_id or peer is None:
        return member == status.member_id
    return peer.answers > (0 if earlier is None else earlier.answers)
