"""One member with the real driver and storage; the test plays peers, workers and event loop."""

from __future__ import annotations

from random import Random

import pytest

from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    SnapshotMeta,
    SoftState,
    Term,
)
from taskraft_replication.driver import trimmer
from taskraft_replication.errors import (
    ChangeRefused,
    NotRaftLeader,
    ProposalLost,
    ReadUnconfirmed,
    Stopped,
)
from taskraft_replication.storage import metadata
from tests.failpoints.failpoints import Failpoints
from tests.replication.counting_machine import CountingMachine
from tests.replication.driver.stand_ins import Waiting
from tests.replication.promising_member import FOUNDERS, SELF, Promises, PromisingMember
from tests.sim.disk import SimDisk

K = MessageKind
PROBE, REPLICATE, SNAPSHOT = ProgressState


class Watched(PromisingMember):
    """Records the observer's calls; runs flushes at once."""

    def __init__(self) -> None:
        self.observed: list[object] = []
        super().__init__(SimDisk(Random(1)), CountingMachine(), Failpoints(), Promises())

    def role_changed(self, state: SoftState, term: Term) -> None:
        self.observed.append((state, term))

    def applied(self, index: LogIndex) -> None:
        self.observed.append(index)

    def membership_changed(self, conf_state: ConfState) -> None:
        self.observed.append(conf_state)

    def synced(self, entries: int, log_bytes: int) -> None:
        self.observed.append(("synced", entries))

    def flush(self, work, then) -> None:
        then(work())

    @property
    def is_pump_due(self) -> bool:
        return self._is_pump_due

    def take_sent(self) -> list[Message]:
        sent, self.sent = self.sent, []
        return sent

    def lead(self, term: int = 2) -> None:
        """Win the vote of member 2; the other members have the log up to its current end."""
        self.driver.campaign()
        self.settle()
        self.hear(K.PRE_VOTE_REPLY, 2, term)
        self.hear(K.VOTE_REPLY, 2, term)
        self.take_sent()

    def acknowledge(self, sender: int = 2) -> None:
        """Acknowledge all entries as a follower."""
        core = self.driver.core
        self.hear(K.APPEND_REPLY, sender, core.term, index=core.last_index)


@pytest.fixture
def member() -> Watched:
    return Watched()


def entries(first: int, last: int, term: int = 2) -> list[Entry]:
    return [Entry(Term(term), LogIndex(index), b"x") for index in range(first, last + 1)]


def append_of(batch: list[Entry], commit: int, term: int = 2) -> Message:
    before = LogIndex(batch[0].index - 1)
    return Message(
        K.APPEND, SELF, MemberId(2), Term(term), Term(1), before, tuple(batch), LogIndex(commit)
    )


def test_a_snapshot_is_installed_after_all_earlier_entries_are_applied(member):
    state = CountingMachine()
    state.apply([Entry(Term(1), LogIndex(1)), *entries(2, 400)])
    content = state.open_snapshot().read(0, 1 << 20)
    member.driver.receive([append_of(entries(2, 300), 300)])
    while not member.machine.applied_index > 1:
        member.driver.pump()
        if member._work:
            work, then = member._work.popleft()
            then(work())
    assert member.machine.applied_index < 150, "only the first slice is applied"
    member.take_snapshot(2, 2, SnapshotMeta(LogIndex(400), Term(2), FOUNDERS), content)
    assert [each for each in member.observed if isinstance(each, int)] == [
        65,
        129,
        193,
        257,
        300,
        400,
    ]
    assert member.machine.digest() == state.digest()
    assert member.driver.membership == FOUNDERS
    member.append(2, 2, entries(401, 402), 402)
    assert member.machine.applied_index == 402


def test_no_message_of_a_term_is_sent_before_the_term_is_durable(member):
    member.driver.campaign()
    member.settle()
    member.hear(K.PRE_VOTE_REPLY, 2, 2)
    assert [m.kind for m in member.take_sent()] == [K.PRE_VOTE] * 2 + [K.VOTE] * 2
    assert member.storage.metadata.hard_state().term == 2
    member.driver.receive([Message(K.PRE_VOTE, SELF, MemberId(3), Term(9), Term(1), LogIndex(1))])
    member.driver.pump()
    assert [m.kind for m in member.take_sent()] == [K.PRE_VOTE_REPLY], (
        "a pre-vote needs no durable term"
    )
    member.driver.receive([Message(K.HEARTBEAT, SELF, MemberId(3), Term(9))])
    member.driver.pump()
    assert not member.take_sent()
    member.settle()
    assert [(m.kind, m.term) for m in member.take_sent()] == [(K.HEARTBEAT_REPLY, 9)]


def test_proposals_of_one_turn_share_a_message_per_peer_and_a_sync(member):
    member.lead()
    member.acknowledge()
    member.acknowledge(3)
    member.take_sent()
    member.observed.clear()
    waiting = [Waiting() for _ in range(3)]
    for number, each in enumerate(waiting):
        member.driver.propose(b"%d" % number, each)
    assert not member.driver.is_synced
    member.settle()
    assert member.driver.is_synced
    assert [(m.to, len(m.entries)) for m in member.take_sent()] == [(2, 3), (3, 3)]
    assert member.observed == [("synced", 3)]
    member.acknowledge()
    assert [each.result for each in waiting] == [1, 2, 3]


def test_a_deposed_leader_fails_its_proposals_and_names_the_successor(member):
    member.lead()
    lost, refused = Waiting(), Waiting()
    member.driver.propose(b"lost", lost)
    member.settle()
    member.hear(K.HEARTBEAT, 3, 5)
    assert isinstance(lost.error, ProposalLost)
    member.driver.propose(b"refused", refused)
    assert isinstance(refused.error, NotRaftLeader)
    assert refused.error.leader == 3
    roles = [
        state.role
        for state, _ in (each for each in member.observed if isinstance(each, tuple))
        if isinstance(state, SoftState)
    ]
    assert roles[-2:] == [RaftRole.LEADER, RaftRole.FOLLOWER]


def test_a_change_follows_earlier_proposals_and_excludes_a_second_change(member):
    member.lead()
    member.acknowledge()
    before, change, second = Waiting(), Waiting(), Waiting()
    learner = ConfChange((MemberChange(MemberChangeKind.ADD_LEARNER, MemberId(4)),))
    member.driver.propose(b"before", before)
    member.driver.propose_change(learner, change)
    member.driver.propose_change(learner, second)
    assert isinstance(second.error, ChangeRefused)
    member.settle()
    member.acknowledge()
    assert before.result == 1
    assert change.done()
    assert member.driver.membership.learners == (4,)
    assert member.observed[-4:] == [3, member.driver.membership, 4, 5]


def test_many_membership_changes_with_few_log_bytes_flush_the_state(member, monkeypatch):
    """The history of memberships is stored as a whole, so it must be shortened by flushes."""
    monkeypatch.setattr(metadata, "MEMBERSHIPS_MAX", 10)
    monkeypatch.setattr(trimmer, "FLUSH_MEMBERSHIPS", 4)
    member.lead()
    member.acknowledge()
    note = ConfChange((MemberChange(MemberChangeKind.UPDATE, MemberId(2)),))
    for _ in range(20):
        made = Waiting()
        member.driver.propose_change(note, made)
        member.settle()
        member.acknowledge()
        assert made.done()
        assert made.error is None
    assert len(member.storage.metadata.memberships()) <= 5


def test_changes_are_refused_before_their_history_exceeds_the_limit_of_the_storage(
    member, monkeypatch
):
    """The state is never flushed in this test, like on a hung disk."""
    monkeypatch.setattr(metadata, "MEMBERSHIPS_MAX", 8)
    member.lead()
    member.acknowledge()
    note = ConfChange((MemberChange(MemberChangeKind.UPDATE, MemberId(2)),))
    refused = []
    for _ in range(12):
        made = Waiting()
        member.driver.propose_change(note, made)
        member.settle()
        member.acknowledge()
        refused.append(made.error)
    assert refused[0] is None
    assert isinstance(refused[-1], ChangeRefused)
    assert refused[-1].fault is ConfChangeFault.TOO_MANY_UNFLUSHED
    assert len(member.storage.metadata.memberships()) < 8


def test_a_follower_forgets_only_the_leader_whose_stream_ended(member):
    member.hear(K.HEARTBEAT, 2, 2)
    assert not member.driver.forget_leader(MemberId(3))
    assert member.driver.core.leader == 2
    assert member.driver.forget_leader(MemberId(2))
    assert member.driver.core.leader == 0
    assert member.is_pump_due
    member.settle()
    member.lead(3)
    assert not member.driver.forget_leader(SELF)


@pytest.mark.parametrize(
    "ask",
    [
        lambda driver: driver.receive([Message(K.HEARTBEAT, SELF, MemberId(2), Term(2))]),
        lambda driver: driver.unreachable(MemberId(2)),
        lambda driver: driver.snapshot_sent(MemberId(2), ok=True),
        lambda driver: driver.propose(b"x", Waiting()),
        lambda driver: driver.propose_change(ConfChange(()), Waiting()),
        lambda driver: driver.read_index(Waiting()),
        lambda driver: driver.campaign(),
        lambda driver: driver.transfer_leader(MemberId(2)),
    ],
)
def test_each_request_to_a_member_schedules_a_pump(member, ask):
    member.settle()
    ask(member.driver)
    assert member.is_pump_due


def test_entries_are_applied_in_slices_of_some_milliseconds(member):
    large = [Entry(Term(2), LogIndex(index), bytes(100 << 10)) for index in range(2, 7)]
    member.append(2, 2, [*large, *entries(7, 200)], 200)
    assert [each for each in member.observed if isinstance(each, int)] == [4, 68, 132, 196, 200]
    exact = [Entry(Term(2), LogIndex(201), bytes((256 << 10) - 1)), *entries(202, 203)]
    member.append(2, 2, exact, 203)
    assert member.observed[-2:] == [202, 203]


def test_a_stopped_driver_ends_all_waits(member):
    member.lead()
    proposed, waiting, reader = Waiting(), Waiting(), Waiting()
    member.driver.propose(b"proposed", proposed)
    member.driver.pump()
    member.driver.propose(b"waiting", waiting)
    member.driver.read_index(reader)
    end = Stopped("the end")
    member.driver.fail_all(end)
    assert isinstance(proposed.error, ProposalLost), "the outcome is unknown"
    assert isinstance(waiting.error, ProposalLost), (
        "the entry is in the log, so the outcome is unknown"
    )
    assert reader.error is end


def test_ticks_of_an_idle_member_schedule_no_pump(member):
    member.hear(K.HEARTBEAT, 2, 2)
    for _ in range(5):
        member.driver.tick()
        assert not member.is_pump_due
    for _ in range(20):
        member.driver.tick()
    assert member.is_pump_due


def test_counters_follow_the_work_of_a_member(member):
    member.append(2, 2, entries(2, 6), 4)
    counters = member.driver.counters
    assert (counters.entries, counters.batches, counters.applied) == (5, 1, 3)
    assert counters.log_bytes > 5
    assert (counters.received, counters.sent) == (1, 1)
    member.hear(K.HEARTBEAT, 2, 2, commit=LogIndex(6))
    assert (counters.entries, counters.batches, counters.applied) == (5, 1, 5)
    assert (counters.received, counters.sent) == (2, 2)


def test_a_read_on_the_leader_waits_for_a_round_and_for_the_state(member):
    member.lead()
    reader = Waiting()
    member.driver.read_index(reader)
    member.settle()
    member.acknowledge()
    assert not reader.done(), "committed, but no member has confirmed the leader"
    (heartbeat, _) = [m for m in member.take_sent() if m.kind is K.HEARTBEAT and m.context]
    member.hear(K.HEARTBEAT_REPLY, 2, 2, context=heartbeat.context)
    assert reader.result == member.machine.applied_index


def test_reads_that_arrive_during_a_round_share_the_next_round(member):
    member.lead()
    member.acknowledge()
    first, second = Waiting(), Waiting()
    member.take_sent()
    member.driver.read_index(first)
    member.settle()
    member.driver.read_index(second)
    member.settle()
    (round_1,) = {m.context for m in member.take_sent() if m.kind is K.HEARTBEAT}
    member.hear(K.HEARTBEAT_REPLY, 2, 2, context=round_1)
    assert first.done()
    assert not second.done()
    (round_2,) = {m.context for m in member.take_sent() if m.kind is K.HEARTBEAT}
    member.hear(K.HEARTBEAT_REPLY, 2, 2, context=round_2)
    assert second.done()


def test_a_read_without_a_leader_times_out(member):
    reader = Waiting()
    member.driver.read_index(reader)
    member.settle()
    for _ in range(40):
        assert not reader.done()
        member.driver.tick()
    assert isinstance(reader.error, ReadUnconfirmed)


def confirmed_read(member, index):
    """Return a read at a follower that leader 2 has confirmed for ``index``."""
    member.hear(K.HEARTBEAT, 2, 2)
    reader = Waiting()
    member.driver.read_index(reader)
    member.settle()
    (asked,) = [m for m in member.take_sent() if m.kind is K.READ_INDEX]
    member.hear(K.READ_INDEX_REPLY, 2, 2, index=index, context=asked.context)
    return reader


def test_a_snapshot_releases_reads_that_wait_for_its_entries(member):
    reader = confirmed_read(member, LogIndex(400))
    assert not reader.done()
    content = CountingMachine().open_snapshot().read(0, 1 << 20)
    member.take_snapshot(2, 2, SnapshotMeta(LogIndex(400), Term(2), FOUNDERS), content + bytes(8))
    assert reader.result == 400


def test_a_follower_refuses_a_membership_change(member):
    member.hear(K.HEARTBEAT, 2, 2)
    change = Waiting()
    member.driver.propose_change(ConfChange(()), change)
    assert isinstance(change.error, NotRaftLeader)


def test_a_founder_starts_behind_the_first_entry_and_does_not_apply_it(member):
    assert member.machine.applied_index == 1
    assert not member.driver.is_only_voter
    assert member.driver.membership == FOUNDERS
    member.append(2, 2, entries(2, 3), 3)
    assert member.machine.applied_index == 3


def behind_the_log(member: Watched) -> None:
    """Lead, and let member 3 miss so many entries that a snapshot to it is in flight."""
    member.lead()
    member.acknowledge()
    for _ in range(12):
        for _ in range(20):
            member.driver.propose(b"x" * 100, Waiting())
        member.settle()
        member.acknowledge()
    first, core = member.storage.view.first_index(), member.driver.core
    assert first > 100
    rejected = core.status().progress[MemberId(3)].next - 1
    member.hear(
        K.APPEND_REPLY, 3, 2, reject=True, index=LogIndex(rejected), reject_hint=LogIndex(1)
    )


def test_the_core_of_a_leader_learns_that_a_peer_is_unreachable(member):
    member.lead()
    member.acknowledge()
    assert member.driver.core.status().progress[MemberId(2)].state is REPLICATE
    member.driver.unreachable(MemberId(2))
    assert member.driver.core.status().progress[MemberId(2)].state is PROBE


def test_leadership_is_offered_to_a_follower_with_the_complete_log(member):
    member.lead()
    member.acknowledge()
    member.take_sent()
    member.driver.transfer_leader(MemberId(2))
    member.settle()
    assert [(m.kind, m.to) for m in member.take_sent()] == [(K.TIMEOUT_NOW, 2)]


def test_a_follower_that_needs_trimmed_entries_gets_a_snapshot(member):
    behind_the_log(member)
    ((message, content),) = member.snapshots
    assert (message.to, message.snapshot.meta.index) == (3, content.index)
    assert content.index >= member.storage.view.first_index() - 1
    progress = member.driver.core.status().progress[MemberId(3)]
    assert (progress.state, progress.pending_snapshot) == (SNAPSHOT, content.index)
    member.driver.snapshot_sent(MemberId(3), ok=True)
    progress = member.driver.core.status().progress[MemberId(3)]
    assert (progress.state, progress.next) == (PROBE, content.index + 1)


def test_a_failed_snapshot_is_sent_again_after_a_message_of_the_receiver(member):
    behind_the_log(member)
    member.driver.snapshot_sent(MemberId(3), ok=False)
    member.settle()
    assert len(member.snapshots) == 1, "an immediate retry would fail again"
    member.hear(K.HEARTBEAT_REPLY, 3, 2)
    assert [message.to for message, _ in member.snapshots] == [3, 3]


def test_a_member_without_work_schedules_no_pump(member):
    member.append(2, 2, entries(2, 6), 4)
    beat = Message(K.HEARTBEAT, SELF, 2, 2, commit=LogIndex(6))
    member.driver.receive([beat])
    member._is_pump_due = False
    member.driver.pump()
    assert member.machine.applied_index == 6
    assert not member.is_pump_due


def test_a_confirmed_read_is_released_by_the_entry_that_it_waits_for(member):
    reader = confirmed_read(member, LogIndex(4))
    member.append(2, 2, entries(2, 4), 3)
    assert not reader.done()
    member.hear(K.HEARTBEAT, 2, 2, commit=LogIndex(4))
    assert reader.result == 4


def test_a_proposal_below_an_installed_snapshot_is_lost(member):
    member.lead()
    proposed = Waiting()
    member.driver.propose(b"x", proposed)
    member.driver.pump()
    member.driver.installed(SnapshotMeta(LogIndex(400), Term(2), FOUNDERS))
    assert isinstance(proposed.error, ProposalLost)
    assert member.observed[-2:] == [FOUNDERS, 400]


def test_a_deposed_leader_loses_only_uncommitted_proposals(member):
    member.lead()
    member.acknowledge()
    committed, lost = Waiting(), Waiting()
    member.driver.propose(b"committed", committed)
    member.settle()
    core = member.driver.core
    committing = Message(K.APPEND_REPLY, SELF, MemberId(2), core.term, index=core.last_index)
    member.driver.propose(b"lost", lost)
    member.driver.pump()
    member.driver.receive([committing, Message(K.HEARTBEAT, SELF, MemberId(3), Term(9))])
    member.settle()
    assert committed.result == 1
    assert isinstance(lost.error, ProposalLost)
