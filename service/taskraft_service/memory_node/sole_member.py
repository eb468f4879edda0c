"""A Raft group of one member without a log: each proposed entry is committed at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, NoReturn

from taskraft.v1 import error_pb2
from taskraft_replication.beacons import Beacons
from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.types import (
    NO_MEMBER,
    ConfState,
    Entry,
    LogIndex,
    MemberId,
    RaftRole,
    Roster,
    SoftState,
    Term,
)
from taskraft_replication.errors import NotRaftLeader, TransferFailed
from taskraft_replication.node.status import NodeStatus
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.cluster.cluster_members import info_of
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.machine.state_machine import QueueMachine

GROUP_ID: Final = 0


class SoleMember:
    """The part of ``taskraft_replication.node.node.Node`` that the service uses.

    Args:
        member: the only member of the group.
        machine: applies the entries.
    """

    append_idle: Final = True
    is_committed: Final = False
    is_disk_stalled: Final = False

    def __init__(self, member: PeerAddress, machine: QueueMachine) -> None:
        self._machine = machine
        self._member_id = MemberId(member.member_id)
        info = replace(info_of(member), directory_id="memory")
        self.roster_at_start = Roster((info,), self._member_id)
        self.membership = ConfState(voters=(self._member_id,), roster=self.roster_at_start)
        self.term = Term(0)
        self.role = RaftRole.FOLLOWER
        self.beacons: Beacons | None = None
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Resolved with the error that broke the node."""

    @property
    def roster(self) -> Roster:
        """Names and addresses of the members after the last change that this member has applied."""
        return self.membership.roster

    @property
    def leader(self) -> MemberId:
        """This member, or ``NO_MEMBER`` if it does not lead."""
        return self._member_id if self.role is RaftRole.LEADER else NO_MEMBER

    def elect(self) -> SoftState:
        """Begin the next term as its leader."""
        self.term = Term(self.term + 1)
        self.role = RaftRole.LEADER
        return SoftState(self._member_id, self.role)

    def depose(self) -> SoftState:
        """Stop leading."""
        self.role = RaftRole.FOLLOWER
        return SoftState(NO_MEMBER, self.role)

    # ------------------------------------------------------------------------------ Node

    def propose(self, data: bytes) -> asyncio.Future[object]:
        """Apply an entry; the future has the state machine's result."""
        outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self.role is not RaftRole.LEADER:
            outcome.set_exception(NotRaftLeader(NO_MEMBER))
            return outcome
        entry = Entry(self.term, LogIndex(self._machine.applied_index + 1), data)
        try:
            (applied,) = self._machine.apply([entry])
        except Exception as error:
            self.fail(error)
            raise
        outcome.set_result(applied)
        return outcome

    def pump(self) -> None:
        """Do nothing, because entries are applied as they are proposed."""

    async def read_index(self) -> LogIndex:
        """Return the index of the last entry; every read is linearizable."""
        return self._machine.applied_index

    async def transfer_leadership(self, to: MemberId | None = None) -> NoReturn:
        """Refuse, because there is no other member."""
        raise TransferFailed(f"there is no member {to or ''} to transfer the leadership to")

    async def end_leadership(self) -> NoReturn:
        """Refuse, because no test uses up the numbers of a term."""
        raise NotRaftLeader(NO_MEMBER)

    async def change_membership(self, change: ConfChange) -> NoReturn:
        """Refuse, because the group has one member."""
        del change
        raise CallRefused(
            error_pb2.Error.NOT_IMPLEMENTED, "a cluster in memory has one member; use real nodes"
        )

    def fail(self, error: Exception) -> None:
        """Record why the node is broken."""
        if not self.failed.done():
            self.failed.set_result(error)

    def status(self) -> NodeStatus:
        """Return a copy of this member's state."""
        applied = self._machine.applied_index
        return NodeStatus(
            member_id=self._member_id,
            group_id=GROUP_ID,
            role=self.role,
            term=self.term,
            leader=self.leader,
            commit=applied,
            applied=applied,
            first=LogIndex(1),
            last=applied,
            synced=applied,
            durable=applied,
            conf_state=self.membership,
            peers={},
        )
