"""Be one member of a Raft group: the core's only door.

The core is a pure function of the calls made on it and of the random numbers it is given. Calls
must not overlap. After any call the driver looks at ``has_ready``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from taskraft_replication.core.ready import ReadyWriter
from taskraft_replication.core.roles import become_follower
from taskraft_replication.core.status import Status, status_of
from taskraft_replication.core.storage_replies import applied_to
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

    __slots__ = ("_member", "_ready")

    def __init__(
        self,
        config: RaftConfig,
        storage: LogReader,
        rng: Callable[[int], int],
        trace: Tracer = no_trace,
    ) -> None:
        """Start from what is stored.

        ``rng(n)`` returns a number from 0 up to, not including, ``n``; it decides nothing but
        election timeouts. ``trace`` is told what happens inside.
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

    # What happens

    def tick(self) -> None:
        """Let one tick pass; its length is the driver's business."""
        if self._member.role is RaftRole.LEADER:
            leader.tick(self._member)
        else:
            election.tick(self._member)

    def step(self, message: Message) -> None:
        """Take in a message from a peer, or a reply that a storage worker has released.

        Replies of the workers come in the order of the requests. Messages from peers may be lost,
        late, doubled or out of order; those of a peer's earlier life, before its last restart, must
        be kept away by the transport.
        """
        receive(self._member, message)

    def report_unreachable(self, member: MemberId) -> None:
        """Say that the last message to ``member`` was probably lost."""
        if self._member.role is RaftRole.LEADER:
            leader.on_unreachable(self._member, member)

    def report_snapshot(self, member: MemberId, ok: bool) -> None:  # noqa: FBT001 - as in RawNode
        """Say how the transfer of the snapshot sent to ``member`` ended."""
        if self._member.role is RaftRole.LEADER:
            leader.on_snapshot_status(self._member, member, ok=ok)

    # What is wanted

    def propose(self, data: bytes) -> None:
        """Append an entry with ``data``; on a leader it is then ``last_index`` at ``term``.

        It may still be lost: it happened when an entry with that index *and* that term is applied.

        Raises:
            ProposalDropped: it is certain not to happen; the reason says what to do.
        """
        self._propose((Entry(Term(0), LogIndex(0), data),))

    def propose_unsent(self, data: bytes) -> None:
        """Append an entry as ``propose`` does, but send it only when the next Ready is taken.

        All entries appended before that Ready share one message to each follower.

        Raises:
            ProposalDropped: this member does not lead, or as for ``propose``.
        """
        member = self._member
        if member.role is not RaftRole.LEADER:
            raise ProposalDropped(DropReason.NOT_LEADER)
        reason = proposal.append_unsent(member, data)
        if reason is not None:
            raise ProposalDropped(reason)

    def propose_conf_change(
        self, change: ConfChange, kind: EntryKind = EntryKind.CONF_CHANGE_V2
    ) -> ConfChangeFault | None:
        """Append a membership change.

        Returns why it cannot be made now, if so; an empty entry then takes its place in the log.

        Raises:
            ProposalDropped: as for ``propose``.
        """
        assert kind is not EntryKind.NORMAL
        assert kind is EntryKind.CONF_CHANGE_V2 or not change.enters_joint
        entry = Entry(Term(0), LogIndex(0), confchange.encode(change), kind)
        return self._propose((entry,))

    def apply_conf_change(self, change: ConfChange) -> ConfState:
        """Act by ``change``; called while its entry is applied, before that is reported.

        Returns the configuration after it, which belongs into the state that is being built:
        snapshots and ``LogReader.initial_state`` give it back.

        Raises:
            ConfChangeInvalid: the members of the group disagree: stop.
        """
        return reconfiguration.apply_change(self._member, change)

    def read_index(self, context: bytes) -> None:
        """Ask from which index on a read, named by ``context``, is linearizable.

        The answer comes as a ``ReadState``. It never comes if the request or the leadership is
        lost: ask again after a while and after each change of the leader.
        """
        own_id = self._member.config.member_id
        request = Message(MessageKind.READ_INDEX, own_id, own_id, context=context)
        read_index.on_read_index(self._member, request)

    def transfer_leader(self, to: MemberId) -> None:
        """Ask the leader to hand over to the voter ``to``.

        It takes at most an election timeout, in which proposals are dropped, and may fail.
        """
        dispatch(self._member, Message(MessageKind.TRANSFER_LEADER, NO_MEMBER, to))

    def campaign(self) -> None:
        """Try to be elected now."""
        election.start(self._member)

    def forget_leader(self) -> None:
        """Forget the leader, so that this member may vote for another one before it times out."""
        follower.forget_leader(self._member)

    # What to do

    def has_ready(self) -> bool:
        """Tell whether there is work for the driver."""
        return self._ready.has_ready()

    def ready(self) -> Ready:
        """Return the work for the driver; each piece once."""
        if self._member.has_unsent_proposals:
            proposal.send_unsent(self._member)
        return self._ready.take()

    def advance(self) -> None:
        """Say that the last Ready is stored, applied and sent. Only in synchronous mode."""
        assert not self._member.config.async_storage_writes
        for message in self._ready.take_steps():
            dispatch(self._member, message)

    # What is

    @property
    def term(self) -> Term:
        """Return the current term."""
        return self._member.term

    @property
    def role(self) -> RaftRole:
        """Return the role played in the current term."""
        return self._member.role

    @property
    def leader(self) -> MemberId:
        """Return the leader of the term, ``NO_MEMBER`` if none is known."""
        return self._member.leader

    @property
    def commit_index(self) -> LogIndex:
        """Return the last entry known to be committed."""
        return self._member.log.commit_index

    @property
    def applied_index(self) -> LogIndex:
        """Return the last entry reported as applied."""
        return self._member.log.applied_index

    @property
    def last_index(self) -> LogIndex:
        """Return the last entry of the log, synced or not."""
        return self._member.log.last_index

    def status(self) -> Status:
        """Return a copy of the whole state."""
        return status_of(self._member)

    def _propose(self, entries: Sequence[Entry]) -> ConfChangeFault | None:
        outcome = proposal.propose(self._member, entries)
        if isinstance(outcome, DropReason):
            raise ProposalDropped(outcome)
        return outcome


def _resume(member: Member, hard_state: HardState) -> None:
    """Take up the term, the vote and the marks where they were."""
    log = member.log
    applied = member.config.applied
    assert hard_state.commit <= log.last_index, "synced entries are missing from the log"
    member.term = hard_state.term
    member.vote = hard_state.vote
    # The commit index in the hard state need not be synced each time it moves. Whatever was applied
    # was committed.
    log.commit_to(max(hard_state.commit, applied))
    if applied:
        applied_to(member, applied, 0)
    become_follower(member, member.term)
