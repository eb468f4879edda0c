"""Provide the public interface of the Raft core: one member of a Raft group.

The core is a pure function of its calls and of the random numbers it is given. Calls must not
overlap. After each call, the driver checks ``has_ready``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from taskraft_replication.core import (
    confchange,
    election,
    follower,
    leader,
    membership,
    proposal,
    read_index,
    reconfiguration,
)
from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.dispatch import dispatch, receive
from taskraft_replication.core.errors import ConfChangeFault, DropReason, ProposalDropped
from taskraft_replication.core.log import RaftLog
from taskraft_replication.core.log_reader import LogReader
from taskraft_replication.core.member import Member
from taskraft_replication.core.ready import ReadyWriter, applied_to
from taskraft_replication.core.roles import become_follower
from taskraft_replication.core.status import Status, status_of
from taskraft_replication.core.trace import Tracer, no_trace
from taskraft_replication.core.types import (
    NO_MEMBER,
    ConfState,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    Ready,
    Term,
)


class RaftCore:
    """One member of a Raft group, without clock, disk or network."""

    __slots__ = ("_member", "_ready", "has_ready", "step")

    def __init__(
        self,
        config: RaftConfig,
        storage: LogReader,
        rng: Callable[[int], int],
        trace: Tracer = no_trace,
    ) -> None:
        """Start from the stored state.

        ``rng(n)`` returns a number from 0 to ``n - 1``; it is used for election timeouts only.
        ``trace`` receives the core's internal events.
        """
        hard_state, configuration = storage.initial_state()
        log = RaftLog(
            storage,
            config.committed_bytes_max,
            applies_unstable=not config.async_storage_writes,
        )
        self._member = Member(config, log, rng, trace)
        self._member.adopt(membership.restored(configuration))
        _resume(self._member, hard_state)
        self._ready = ReadyWriter(self._member)
        self.has_ready: Final = self._ready.has_ready
        """Returns whether there is work for the driver."""
        self.step: Final = partial(receive, self._member)
        """Processes a message from a peer, or a reply that a storage worker has released.

        Replies of a worker must come in the order of the requests. Messages from peers may be lost,
        delayed, duplicated or reordered. The transport must reject messages that a peer sent before
        its last restart.
        """

    # Events

    def tick(self, *, may_campaign: bool = True) -> None:
        """Advance the clock by one tick.

        The driver chooses the length of a tick. ``may_campaign``: whether the tick counts towards
        an election by this member.
        """
        if self._member.role is RaftRole.LEADER:
            leader.tick(self._member)
        else:
            election.tick(self._member, may_campaign=may_campaign)

    def leader_alive(self, leader: MemberId, term: Term) -> bool:
        """Handle the arrival of a part of a message of ``leader``, which leads in ``term``.

        If this member follows this leader in this term, the bytes count as a heartbeat. Returns
        whether they count; the driver then reports this member's activity to the leader.
        """
        return follower.leader_alive(self._member, leader, term)

    def follower_alive(self, member: MemberId, term: Term) -> None:
        """Handle a report that ``member`` receives bytes of this member, the leader of ``term``."""
        if self._member.role is RaftRole.LEADER and self._member.term == term:
            leader.on_follower_alive(self._member, member)

    def report_unreachable(self, member: MemberId) -> None:
        """Report that the last message to ``member`` was probably lost."""
        if self._member.role is RaftRole.LEADER:
            leader.on_unreachable(self._member, member)

    def report_snapshot(self, member: MemberId, ok: bool) -> None:  # noqa: FBT001 - as in RawNode
        """Report whether the transfer of the snapshot to ``member`` succeeded."""
        if self._member.role is RaftRole.LEADER:
            leader.on_snapshot_status(self._member, member, ok=ok)

    # Requests

    def propose(self, data: bytes) -> None:
        """Append an entry with ``data``; on a leader it is then at ``last_index`` and ``term``.

        The entry may still be lost. It is committed when an entry with this index *and* this term
        is applied.

        Raises:
            ProposalDropped: nothing was appended; the reason says what to do.
        """
        self._propose((Entry(Term(0), LogIndex(0), data),))

    def propose_unsent(self, data: bytes) -> Entry:
        """Append an entry as ``propose`` does, but send it only when the next Ready is taken.

        Returns the entry, which its index *and* its term identify. All entries appended before that
        Ready share one message to each follower.

        Raises:
            ProposalDropped: this member does not lead, or as for ``propose``.
        """
        member = self._member
        if member.role is not RaftRole.LEADER:
            raise ProposalDropped(DropReason.NOT_LEADER)
        entry = proposal.append_unsent(member, data)
        if isinstance(entry, DropReason):
            raise ProposalDropped(entry)
        return entry

    def propose_conf_change(
        self, change: ConfChange, kind: EntryKind = EntryKind.CONF_CHANGE_V2
    ) -> ConfChangeFault | None:
        """Append a membership change.

        Returns None, or why the change cannot be made now. In that case an empty entry is appended
        in its place.

        Raises:
            ProposalDropped: as for ``propose``.
        """
        assert kind is not EntryKind.NORMAL
        assert kind is EntryKind.CONF_CHANGE_V2 or not change.enters_joint
        entry = Entry(Term(0), LogIndex(0), confchange.encode(change), kind)
        return self._propose((entry,))

    def apply_conf_change(self, change: ConfChange) -> ConfState:
        """Switch to the configuration after ``change``; call this while its entry is being applied.

        Returns the new configuration. The driver must store it with the state, because snapshots
        and ``LogReader.initial_state`` return it.

        Raises:
            ConfChangeInvalid: the members disagree about the configuration; the process must stop.
        """
        return reconfiguration.apply_change(self._member, change)

    def read_index(self, context: bytes) -> None:
        """Request the index from which a read, identified by ``context``, is linearizable.

        The answer is a ``ReadState`` in a later Ready. There is no answer if the request or the
        leadership is lost, so repeat the request after a timeout and after each change of leader.
        """
        own_id = self._member.config.member_id
        request = Message(MessageKind.READ_INDEX, own_id, own_id, context=context)
        read_index.on_read_index(self._member, request)

    def transfer_leader(self, to: MemberId) -> None:
        """Ask the leader to transfer leadership to the voter ``to``.

        The transfer takes at most an election timeout and may fail. Meanwhile proposals are
        dropped.
        """
        dispatch(self._member, Message(MessageKind.TRANSFER_LEADER, NO_MEMBER, to))

    def step_down(self) -> None:
        """Stop leading, as after a failed quorum check; does nothing on other members.

        The term does not change. The other members elect a leader after their election timeouts.
        """
        if self._member.role is RaftRole.LEADER:
            become_follower(self._member, self._member.term)

    def campaign(self) -> None:
        """Start an election now."""
        election.start(self._member)

    def forget_leader(self) -> None:
        """Forget the leader, so that this member may vote before its election timeout."""
        follower.forget_leader(self._member)

    # Work for the driver

    def ready(self) -> Ready:
        """Return the work for the driver; each piece of work is returned once."""
        if self._member.has_unsent_proposals:
            proposal.send_unsent(self._member)
        return self._ready.take()

    def advance(self) -> None:
        """Report that the last Ready is stored, applied and sent.

        Only for the synchronous mode.
        """
        assert not self._member.config.async_storage_writes
        for message in self._ready.take_steps():
            dispatch(self._member, message)

    # State

    @property
    def term(self) -> Term:
        """Return the current term."""
        return self._member.term

    @property
    def hard_state(self) -> HardState:
        """Return term, vote and commit index, durable or not."""
        return self._member.hard_state

    @property
    def role(self) -> RaftRole:
        """Return this member's role in the current term."""
        return self._member.role

    @property
    def leader(self) -> MemberId:
        """Return the leader of the term, or ``NO_MEMBER`` if it is unknown."""
        return self._member.leader

    @property
    def live_leader(self) -> MemberId:
        """Return the leader if it was active within an election timeout, or ``NO_MEMBER``.

        A learner does not campaign, so its ``leader`` may have crashed long ago.
        """
        member = self._member
        is_live = member.election_elapsed < member.config.election_ticks
        return member.leader if is_live else NO_MEMBER

    @property
    def commit_index(self) -> LogIndex:
        """Return the index of the last entry known to be committed."""
        return self._member.log.commit_index

    @property
    def stored_commit_index(self) -> LogIndex:
        """Return the last committed entry that is durable; 0 while a snapshot replaces the log."""
        return self._member.log.stored_commit_index

    @property
    def has_committed_in_term(self) -> bool:
        """Return whether an entry of the current term is committed."""
        return self._member.has_committed_in_term()

    @property
    def applied_index(self) -> LogIndex:
        """Return the index of the last entry reported as applied."""
        return self._member.log.applied_index

    @property
    def last_index(self) -> LogIndex:
        """Return the index of the last entry of the log, durable or not."""
        return self._member.log.last_index

    def status(self) -> Status:
        """Return a copy of the member's state."""
        return status_of(self._member)

    def _propose(self, entries: Sequence[Entry]) -> ConfChangeFault | None:
        outcome = proposal.propose(self._member, entries)
        if isinstance(outcome, DropReason):
            raise ProposalDropped(outcome)
        return outcome


def _resume(member: Member, hard_state: HardState) -> None:
    """Restore term, vote, commit index and applied index from the stored state."""
    log = member.log
    applied = member.config.applied
    assert hard_state.commit <= log.last_index, "synced entries are missing from the log"
    member.term = hard_state.term
    member.vote = hard_state.vote
    # The stored commit index may lag, because it is not fsynced on each change. All applied entries
    # were committed.
    log.commit_to(max(hard_state.commit, applied))
    if applied:
        applied_to(member, applied, 0)
    become_follower(member, member.term)
