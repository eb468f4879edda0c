"""Drive the Raft core: turn each ``Ready`` into work for disk, network and state machine.

The driver performs no I/O. The node performs its effects on asyncio, and the simulator in virtual
time. All calls come from one thread and never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    NO_MEMBER,
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    ReadState,
    Ready,
    SnapshotMeta,
    SoftState,
    Term,
)
from taskraft_replication.driver.applier import Applier
from taskraft_replication.driver.disk_watch import DiskHandover, DiskPolicy, DiskWatch
from taskraft_replication.driver.election_timer import ElectionTimer
from taskraft_replication.driver.proposals import PendingProposals
from taskraft_replication.driver.reads import LinearizableReads
from taskraft_replication.driver.trimmer import Trimmer, TrimPolicy
from taskraft_replication.effects import Effects, ResultFuture
from taskraft_replication.errors import ChangeRefused, ReplicationError, SnapshotUnavailable
from taskraft_replication.machine import StateMachine
from taskraft_replication.observer import Observer, RaftCounters
from taskraft_replication.snapshots.installer import SnapshotInstaller
from taskraft_replication.snapshots.receiver import Done, SnapshotReceiver
from taskraft_replication.snapshots.source import OutgoingSnapshot, SnapshotSource
from taskraft_replication.storage.group_storage import GroupStorage
from taskraft_replication.storage.log_writer import LogWriter
from taskraft_replication.storage.membership_history import BOOTSTRAP_INDEX, BOOTSTRAP_TERM
from taskraft_replication.storage.snapshot_inbox import IncomingSnapshot, SnapshotInbox

_BEFORE_A_TERM: Final = frozenset({MessageKind.PRE_VOTE, MessageKind.PRE_VOTE_REPLY})
"""Kinds of messages about the next term, which no member has started yet."""


def _nothing_to_propose() -> bool:
    return False


@dataclass(slots=True, frozen=True)
class StoragePolicy:
    """The settings of a driver for its log and its disk."""

    trim: TrimPolicy
    disk: DiskPolicy


class RaftDriver:
    """One member of a group: the core, with storage, snapshots, reads and proposals around it."""

    def __init__(
        self,
        core: RaftCore,
        config: RaftConfig,
        storage: GroupStorage,
        machine: StateMachine,
        effects: Effects,
        observer: Observer,
        policy: StoragePolicy,
    ) -> None:
        self.core = core
        self.storage = storage
        self.counters = RaftCounters()
        self._machine = machine
        self._effects = effects
        self._observer = observer
        self._inbox = SnapshotInbox(storage.fs, storage.metadata.directory)
        self._writer = LogWriter(storage, effects, self)
        self._applier = Applier(core, machine, storage, effects, self)
        self._installer = SnapshotInstaller(
            machine, storage, self._inbox, self._writer, effects, self
        )
        self._receiver = SnapshotReceiver(
            core, machine, self._inbox, self._writer, self._installer, effects
        )
        self._snapshots = SnapshotSource(
            machine, storage, effects, lambda member: self.snapshot_sent(member, ok=False)
        )
        self._trimmer = Trimmer(
            machine, storage, effects, policy.trim, self._snapshots.needed_from, self.counters
        )
        self._proposals = PendingProposals()
        self._reads = LinearizableReads(
            core,
            storage.incarnation,
            retry_ticks=config.election_ticks,
            expiry_ticks=4 * config.election_ticks,
        )
        self.disk = DiskWatch(policy.disk, effects.storage_work)
        self._handover = DiskHandover(
            core, self.disk, storage.view.last_index, config.election_ticks
        )
        self._election_timer = ElectionTimer()
        self._own_id = config.member_id
        self.membership = storage.memberships.at(machine.applied_index)
        """The membership after the last change that this member has applied."""
        self._is_pumping = False
        self.before_applying: Callable[[], bool] = _nothing_to_propose
        """Called when this leader has committed entries, before it applies them. Returns whether
        applying waits for the next pump, because the next entry is proposed before: the followers
        then work while this member applies."""
        self._has_committed = False
        """Whether entries were committed since ``before_applying`` was called."""
        self._gives_way = False
        """Whether this pump leaves committed entries to the next one."""
        self._awaited_write = 0
        """Number of the write for which committed entries wait; 0: they wait for none."""
        self._is_alive_told = False
        """Whether an activity report was sent to the leader in this tick."""
        self._soft_state = SoftState(NO_MEMBER, RaftRole.FOLLOWER)
        storage.view.snapshot_source = self._snapshots.current

    @property
    def hard_state(self) -> HardState:
        """Term, vote and commit index of the core."""
        return self.core.hard_state

    @property
    def is_only_voter(self) -> bool:
        """Return whether this member alone is a quorum."""
        return self.core.status().configuration.voters == (self._own_id,)

    @property
    def is_synced(self) -> bool:
        """Return whether the whole log is on this member's disk."""
        return self.core.last_index == self.storage.view.last_index()

    @property
    def is_committed(self) -> bool:
        """Return whether the whole log of this member is committed."""
        return self.core.commit_index == self.core.last_index

    # Events

    def tick(self) -> None:
        """Advance the clock by one tick."""
        self._is_alive_told = False
        core, disk = self.core, self.disk
        was_stalled = disk.is_stalled
        disk.tick(applying_waits=self._applier.waits_for_disk)
        if disk.is_stalled is not was_stalled:
            self.counters.disk_stalls += not was_stalled
            self._observer.disk_stalled(is_stalled=disk.is_stalled)
        may_campaign = core.role is RaftRole.LEADER or self._election_timer.counts(
            # A member that cannot store a vote must not campaign.
            is_vote_durable=not disk.is_stalled and self._writer.has_stored(core.hard_state)
        )
        core.tick(may_campaign=may_campaign)
        self._handover.tick()
        self.counters.disk_handovers = self._handover.begun
        self._reads.tick()
        if core.has_ready() or self._applier.has_work:
            # Most ticks of an idle group produce no work.
            self._effects.request_pump()

    def receive(self, messages: Sequence[Message]) -> None:
        """Process messages from a peer."""
        self.counters.received += len(messages)
        step = self.core.step
        for message in messages:
            step(message)
        self._effects.request_pump()

    def leader_alive(self, member: MemberId, term: Term) -> None:
        """Handle the arrival of a part of a frame from ``member``, which leads in ``term``.

        Sends the leader at most one activity report per tick.
        """
        if self.core.leader_alive(member, term) and not self._is_alive_told:
            self._is_alive_told = True
            self._effects.send_alive(member, term)

    def follower_alive(self, member: MemberId, term: Term) -> None:
        """Handle an activity report of ``member``, which follows this leader of ``term``."""
        self.core.follower_alive(member, term)

    def receive_snapshot(self, message: Message, incoming: IncomingSnapshot, done: Done) -> None:
        """Process a snapshot whose content has arrived completely; then call ``done``."""
        self._receiver.received(message, incoming, done, self.pump)

    def unreachable(self, member: MemberId) -> None:
        """Report that messages to ``member`` were lost."""
        self.core.report_unreachable(member)
        self._effects.request_pump()

    def forget_leader(self, member: MemberId) -> bool:
        """Forget the leader if it is ``member``; return whether it was.

        This member may then vote for another member at once. If the leader still lives, its next
        heartbeat restores it.
        """
        if self.core.leader != member or self.core.role is not RaftRole.FOLLOWER:
            return False
        self.core.forget_leader()
        self._effects.request_pump()
        return True

    def snapshot_sent(self, member: MemberId, *, ok: bool) -> None:
        """Report the result of the transfer of a snapshot to ``member``."""
        self._snapshots.ended(member)
        self.core.report_snapshot(member, ok)
        self._effects.request_pump()

    def open_state(self, then: Callable[[OutgoingSnapshot | SnapshotUnavailable], None]) -> None:
        """Open the state for a member that has lost its own; see ``SnapshotSource.open_apart``."""
        self._snapshots.open_apart(then)

    # Requests

    def propose(self, data: bytes, outcome: ResultFuture[object]) -> None:
        """Append an entry to the log at once; the next pump sends and stores it.

        ``outcome`` gets the state machine's result. It fails with ``NotRaftLeader`` or
        ``ProposalDropped`` if nothing was appended, and with ``ProposalLost`` if it is unknown
        whether the entry will be committed.
        """
        self._proposals.propose(self.core, data, outcome)
        self._effects.request_pump()

    def propose_change(self, change: ConfChange, outcome: ResultFuture[object]) -> None:
        """Append a membership change; ``outcome`` is resolved when the change is applied here.

        It fails as in ``propose``, or with ``ChangeRefused``.
        """
        if not self.storage.metadata.may_change(len(self.storage.memberships)):
            # Check the change before it is in the log, because each member would stop when it
            # applies an invalid change.
            outcome.set_exception(ChangeRefused(ConfChangeFault.TOO_MANY_UNFLUSHED))
            return
        self._proposals.propose_change(self.core, change, outcome)
        self._effects.request_pump()

    def read_index(self, outcome: ResultFuture[LogIndex]) -> None:
        """Resolve ``outcome`` with an index at which a read of the local state is linearizable."""
        self._reads.add(outcome)
        self._effects.request_pump()

    def campaign(self) -> None:
        """Start an election now, unless the disk is stalled and could not store the vote."""
        if self.disk.is_stalled:
            return
        self.core.campaign()
        self._effects.request_pump()

    def transfer_leader(self, to: MemberId) -> None:
        """Transfer leadership to ``to``, if this member leads."""
        self.core.transfer_leader(to)
        self._effects.request_pump()

    def step_down(self) -> None:
        """Stop leading, if this member leads; an election in a later term follows."""
        self.core.step_down()
        self._effects.request_pump()

    @property
    def inbox(self) -> SnapshotInbox:
        """Return the storage for the content of incoming snapshots."""
        return self._inbox

    def fail_all(self, error: ReplicationError) -> None:
        """Fail all waiting requests; the driver must not be used afterwards."""
        self._proposals.lose_all(str(error))
        self._reads.fail_all(error)

    # Work

    def pump(self) -> None:
        """Do all work that can be done now."""
        assert not self._is_pumping, "a pump may not begin inside another one"
        core = self.core
        self._is_pumping = True
        if self._reads.waiting:
            self._reads.begin_round()
        while core.has_ready():
            self._perform(core.ready())
        is_leader = self._soft_state.role is RaftRole.LEADER
        acknowledges = self._writer.is_busy and not is_leader and self._acknowledges_first()
        if self._applier.has_work and not self._gives_way and not acknowledges:
            # Apply one slice only, so that the event loop can run other work.
            self._applier.advance()
            while core.has_ready():
                self._perform(core.ready())
        if self._writer.is_due:
            # A finished write may give the core no work, and the queued writes must not wait for
            # the next message of a peer.
            self._writer.advance()
            while core.has_ready():
                self._perform(core.ready())
        self._is_pumping = self._gives_way = False
        snapshot = self._writer.next_snapshot
        if snapshot is not None and self._applier.is_idle:
            self._installer.begin(snapshot)
        if self._applier.has_work and not acknowledges:
            self._effects.request_pump()

    def _acknowledges_first(self) -> bool:
        """Return whether this follower's committed entries wait for the end of the running write.

        A follower that applies entries meanwhile would acknowledge later, and the leader would
        commit later. Entries wait for one write at most, and only if no further entries wait.
        """
        running = self._writer.writes
        if not self._applier.has_one_message or self.disk.is_stalled:
            self._awaited_write = 0
        elif self._awaited_write != running:
            self._awaited_write = 0 if self._awaited_write else running
        return self._awaited_write == running

    def _let_propose(self, to_peers: list[Message]) -> list[Message]:
        """Ask for the next entry after a commit; return the messages that must be sent anyway.

        The next entry tells the followers too what is committed, so that messages without entries
        are not needed. If the entry does not follow after all, the next heartbeat tells.
        """
        self._has_committed = False
        self._gives_way = self._soft_state.role is RaftRole.LEADER and self.before_applying()
        if not self._gives_way:
            return to_peers
        return [one for one in to_peers if one.kind is not MessageKind.APPEND or one.entries]

    def _perform(self, ready: Ready) -> None:
        to_peers: list[Message] = []
        of_new_term: list[Message] = []
        durable_term = self._writer.durable_term
        for message in ready.messages:
            to = message.to
            if to > NO_MEMBER:
                if message.kind is MessageKind.SNAPSHOT:
                    self._snapshots.send(message)
                elif message.term <= durable_term or message.kind in _BEFORE_A_TERM:
                    to_peers.append(message)
                else:
                    of_new_term.append(message)
            elif to == APPEND_WORKER:
                self._writer.put(message)
            else:
                assert to == APPLY_WORKER
                self._applier.put(message)
                self._has_committed = True
        if self._has_committed:
            to_peers = self._let_propose(to_peers)
        # Send before the local fsync starts, so that the peers' fsyncs overlap with it.
        if to_peers:
            self.counters.sent += len(to_peers)
            self._effects.send(to_peers)
        # Hold messages of a new term back until the term and all earlier log writes are durable.
        # Otherwise a candidate could crash, restart with a shorter log, and be elected by delayed
        # votes that were granted for the longer log.
        self._writer.advance(of_new_term)
        if ready.read_states:
            self._answer_reads(ready.read_states)
        if ready.soft_state is not None:
            self._change_role(ready.soft_state)

    def _answer_reads(self, states: Sequence[ReadState]) -> None:
        for state in states:
            self._reads.answered(state)
        self._reads.applied(self._machine.applied_index)
        if self._reads.has_next:
            self._effects.request_pump()

    def _change_role(self, state: SoftState) -> None:
        was_leader = self._soft_state.role is RaftRole.LEADER
        self._soft_state = state
        is_leader = state.role is RaftRole.LEADER
        if is_leader or was_leader:
            self._effects.set_leading_term(self.core.term if is_leader else Term(0))
        self._handover.role_changed(state.role)
        if was_leader and not is_leader:
            if self.disk.is_stalled:
                # Entries are applied here only after the disk has answered, perhaps never.
                self._proposals.lose_all("leadership was lost, and the disk does not answer")
            # Committed entries will still be applied here, and resolve their proposals.
            self._proposals.lose_after(self.core.commit_index, "leadership was lost")
        self._observer.role_changed(state, self.core.term)

    def written(self, replies: Sequence[Message]) -> None:
        """Deliver the replies of a finished write; see ``WriteListener``."""
        own_id = self._own_id
        to_peers = []
        for reply in replies:
            if reply.to == own_id:
                self.core.step(reply)
            else:
                to_peers.append(reply)
        if to_peers:
            self.counters.sent += len(to_peers)
            self._effects.send(to_peers)
        if not self._is_pumping:
            self._effects.request_pump()

    def synced(self, entries: int, log_bytes: int) -> None:
        """Count a finished write; see ``WriteListener``."""
        self.counters.batches += bool(entries)
        self.counters.entries += entries
        self.counters.log_bytes += log_bytes
        trimmer, counters = self._trimmer, self.counters
        if counters.log_bytes >= trimmer.flush_at or counters.entries >= trimmer.flush_at_entries:
            trimmer.flush()
        self._observer.synced(entries, log_bytes)

    def applied(self, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """Hand out the results; see ``ApplyListener``."""
        self._proposals.applied(entries, results)
        index = entries[-1].index
        self.counters.applied += len(entries)
        if self._reads.confirmed:
            self._reads.applied(index)
        self._observer.applied(index)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Use another membership; see ``ApplyListener``."""
        self.membership = conf_state
        self._trimmer.membership_changed()
        self._observer.membership_changed(conf_state)

    def installed(self, meta: SnapshotMeta) -> None:
        """Continue from an installed snapshot; see ``InstallListener``."""
        self.membership_changed(meta.conf_state)
        self._proposals.lose_all("a snapshot replaced the log")
        self._reads.applied(meta.index)
        self._observer.applied(meta.index)


def build_driver(
    config: RaftConfig,
    rng: Callable[[int], int],
    storage: GroupStorage,
    machine: StateMachine,
    effects: Effects,
    observer: Observer,
    policy: StoragePolicy,
) -> RaftDriver:
    """Return the driver of a member, continuing from its stored log and state.

    Founders apply the first entry of a group directly: it stands for the snapshot that the group
    starts from.
    """
    if machine.applied_index < BOOTSTRAP_INDEX <= storage.view.first_index() - 1:
        machine.apply((Entry(BOOTSTRAP_TERM, BOOTSTRAP_INDEX),))
    config = replace(config, applied=machine.applied_index)
    core = RaftCore(config, storage.view, rng)
    return RaftDriver(core, config, storage, machine, effects, observer, policy)
