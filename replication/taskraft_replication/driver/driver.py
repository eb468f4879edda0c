"""Decide what the core's ``Ready`` means for disk, network and state machine; perform nothing.

Shared by the node, which performs on asyncio, and the simulator, which performs in virtual time.
All calls come from one thread and never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from taskraft_replication.core.confchange import ConfChange
from taskraft_replication.core.config import RaftConfig
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
)
from taskraft_replication.driver.applier import Applier
from taskraft_replication.driver.proposals import PendingProposals
from taskraft_replication.driver.reads import LinearizableReads
from taskraft_replication.driver.result_future import ResultFuture
from taskraft_replication.driver.trimmer import Trimmer, TrimPolicy
from taskraft_replication.effects import Effects
from taskraft_replication.errors import ReplicationError
from taskraft_replication.machine import StateMachine
from taskraft_replication.observer import Observer, RaftCounters
from taskraft_replication.snapshots.installer import SnapshotInstaller
from taskraft_replication.snapshots.receiver import Done, SnapshotReceiver
from taskraft_replication.snapshots.source import SnapshotSource
from taskraft_replication.storage.group_storage import BOOTSTRAP_INDEX, BOOTSTRAP_TERM, GroupStorage
from taskraft_replication.storage.log_writer import LogWriter
from taskraft_replication.storage.snapshot_inbox import IncomingSnapshot, SnapshotInbox

_BEFORE_A_TERM: Final = frozenset({MessageKind.PRE_VOTE, MessageKind.PRE_VOTE_REPLY})
"""They name a term that nobody is in yet."""


class RaftDriver:
    """One member of a group: the core and everything that serves it."""

    def __init__(
        self,
        core: RaftCore,
        config: RaftConfig,
        storage: GroupStorage,
        machine: StateMachine,
        effects: Effects,
        observer: Observer,
        trim_policy: TrimPolicy,
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
        self._snapshots = SnapshotSource(machine, storage, effects)
        self._trimmer = Trimmer(machine, storage, effects, trim_policy, self._snapshots.needed_from)
        self._proposals = PendingProposals()
        self._reads = LinearizableReads(
            core,
            storage.incarnation,
            retry_ticks=config.election_ticks,
            expiry_ticks=4 * config.election_ticks,
        )
        self._own_id = config.member_id
        self.membership = storage.membership_at(machine.applied_index)
        """The members, as far as their changes are applied here."""
        self._is_pumping = False
        self._soft_state = SoftState(NO_MEMBER, RaftRole.FOLLOWER)
        storage.view.snapshot_source = self._snapshots.current

    @property
    def hard_state(self) -> HardState:
        """Term, vote and commit index as the core has them."""
        return self.core.status().hard_state

    @property
    def is_only_voter(self) -> bool:
        """Tell whether this member alone is a quorum."""
        return self.core.status().configuration.voters == (self._own_id,)

    @property
    def is_synced(self) -> bool:
        """Tell whether the whole log is on this member's disk."""
        return self.core.last_index == self.storage.view.last_index()

    # What happens

    def tick(self) -> None:
        """Let a tick pass."""
        self.core.tick()
        self._reads.tick()
        if self.core.has_ready():
            # Most ticks of an idle group give nothing to do.
            self._effects.request_pump()

    def receive(self, messages: Sequence[Message]) -> None:
        """Take messages from a peer."""
        self.counters.received += len(messages)
        step = self.core.step
        for message in messages:
            step(message)
        self._effects.request_pump()

    def receive_snapshot(self, message: Message, incoming: IncomingSnapshot, done: Done) -> None:
        """Take the announcement of a snapshot whose content is whole; then ``done``."""
        self._receiver.received(message, incoming, done, self.pump)

    def unreachable(self, member: MemberId) -> None:
        """Learn that messages to ``member`` were lost."""
        self.core.report_unreachable(member)
        self._effects.request_pump()

    def forget_leader(self, member: MemberId) -> bool:
        """Follow ``member`` no more, if it is the leader; tell whether it was.

        This member may then vote for another one at once; a heartbeat makes up for a mistake.
        """
        if self.core.leader != member or self.core.role is not RaftRole.FOLLOWER:
            return False
        self.core.forget_leader()
        self._effects.request_pump()
        return True

    def snapshot_sent(self, member: MemberId, *, ok: bool) -> None:
        """Learn how the transfer of a snapshot ended."""
        self._snapshots.ended(member)
        self.core.report_snapshot(member, ok)
        self._effects.request_pump()

    # What is wanted

    def propose(self, data: bytes, outcome: ResultFuture[object]) -> None:
        """Append an entry to the log at once; the next pump sends and stores it.

        ``outcome`` gets the state machine's result. It fails with ``NotLeader`` or
        ``ProposalDropped`` if nothing was appended, and with ``ProposalLost`` if it is unknown
        whether the entry will be committed.
        """
        self._proposals.propose(self.core, data, outcome)
        self._effects.request_pump()

    def propose_change(self, change: ConfChange, outcome: ResultFuture[object]) -> None:
        """Append a membership change; ``outcome`` is resolved when it is applied here.

        It fails as that of ``propose`` does, or with ``ChangeRefused``.
        """
        self._proposals.propose_change(self.core, change, outcome)
        self._effects.request_pump()

    def read_index(self, outcome: ResultFuture[LogIndex]) -> None:
        """Let ``outcome`` wait until a read of the local state is linearizable."""
        self._reads.add(outcome)
        self._effects.request_pump()

    def campaign(self) -> None:
        """Try to be elected now."""
        self.core.campaign()
        self._effects.request_pump()

    def transfer_leader(self, to: MemberId) -> None:
        """Hand leadership over, if this member has it."""
        self.core.transfer_leader(to)
        self._effects.request_pump()

    @property
    def inbox(self) -> SnapshotInbox:
        """Where the contents of snapshots arrive."""
        return self._inbox

    def fail_all(self, error: ReplicationError) -> None:
        """Tell everybody who waits that nothing more will come; the driver is of no use then."""
        self._proposals.lose_all(str(error))
        self._reads.fail_all(error)

    # What is done

    def pump(self) -> None:
        """Do all work that can be done now."""
        assert not self._is_pumping, "a pump may not begin inside another one"
        core = self.core
        self._is_pumping = True
        self._reads.begin_round()
        while core.has_ready():
            self._perform(core.ready())
        if self._applier.has_work:
            # One slice only: the loop has others to serve.
            self._applier.advance()
            while core.has_ready():
                self._perform(core.ready())
        self._is_pumping = False
        snapshot = self._writer.next_snapshot
        if snapshot is not None and self._applier.is_idle:
            self._installer.begin(snapshot)
        if self._applier.has_work:
            self._effects.request_pump()

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
        # Before the own sync begins: the peers sync at the same time.
        if to_peers:
            self.counters.sent += len(to_peers)
            self._effects.send(to_peers)
        # A candidate that crashed before its term and the end of its log are durable could be
        # elected in its next life by late votes for this one, though its log is shorter then. So
        # nothing of a term leaves before the term, and what was written before it, is durable.
        self._writer.put_replies(of_new_term)
        self._writer.advance()
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
        if was_leader and state.role is not RaftRole.LEADER:
            # What is committed already will be applied here in a moment.
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
        self._trimmer.written(log_bytes)
        self._observer.synced(entries, log_bytes)

    def applied(self, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """Hand out the results; see ``ApplyListener``."""
        proposals = self._proposals
        if proposals.is_awaited:
            for entry, result in zip(entries, results, strict=True):
                proposals.applied(entry, result)
        index = entries[-1].index
        self.counters.applied += len(entries)
        self._reads.applied(index)
        self._observer.applied(index)

    def membership_changed(self, conf_state: ConfState) -> None:
        """Act by another membership; see ``ApplyListener``."""
        self.membership = conf_state
        self._trimmer.membership_changed()
        self._observer.membership_changed(conf_state)

    def installed(self, meta: SnapshotMeta) -> None:
        """Go on from a snapshot; see ``InstallListener``."""
        self.membership_changed(meta.conf_state)
        self._proposals.lose_all("a snapshot took its place")
        self._reads.applied(meta.index)
        self._observer.applied(meta.index)


def build_driver(
    config: RaftConfig,
    rng: Callable[[int], int],
    storage: GroupStorage,
    machine: StateMachine,
    effects: Effects,
    observer: Observer,
    trim_policy: TrimPolicy,
) -> RaftDriver:
    """Return a member that goes on where its storage and its state machine stand.

    The founders of a group apply its first entry by themselves: it stands for the snapshot that
    the group begins with.
    """
    if machine.applied_index < BOOTSTRAP_INDEX <= storage.view.first_index() - 1:
        machine.apply((Entry(BOOTSTRAP_TERM, BOOTSTRAP_INDEX),))
    config = replace(config, applied=machine.applied_index)
    core = RaftCore(config, storage.view, rng)
    return RaftDriver(core, config, storage, machine, effects, observer, trim_policy)
