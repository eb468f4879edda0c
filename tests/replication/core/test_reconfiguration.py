"""The configuration changes one step at a time, with the quorums of both sides."""

from struct import Struct

import pytest

from taskraft_replication.core.confchange import (
    LEAVE_JOINT,
    ConfChange,
    ConfChangeTransition,
    encode,
    of_entry,
)
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.errors import (
    ConfChangeFault,
    ConfChangeInvalid,
    DropReason,
    ProposalDropped,
)
from taskraft_replication.core.memory_log import MemoryLog
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    HardState,
    Message,
    MessageKind,
    RaftRole,
)
from tests.raft_traces.writing import parse_changes
from tests.replication.core.cluster import Cluster, of_kind, to

K = MessageKind


def change(text, transition=ConfChangeTransition.AUTO):
    return ConfChange(parse_changes(text.split()), transition)


def test_a_voter_is_added_and_catches_up():
    cluster = Cluster(1)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    cluster.add_empty(2)
    assert cluster[1].propose_conf_change(change("v2")) is None
    cluster.settle()
    assert cluster[1].status().configuration == ConfState((1, 2))
    cluster[1].propose(b"y")
    cluster.settle()
    assert cluster.applied(2) == [b"x", b"y"]
    assert cluster[2].status().configuration == ConfState((1, 2))


def test_a_second_change_waits_until_the_first_is_applied():
    """Failure D of PySyncObj: a cut-off leader removed four of five members."""
    cluster = Cluster(5)
    cluster.elect(1)
    assert cluster[1].propose_conf_change(change("r5")) is None
    for member in (4, 3, 2):
        fault = cluster[1].propose_conf_change(change(f"r{member}"))
        assert fault is ConfChangeFault.UNAPPLIED_CHANGE
    cluster.settle(among=[1])
    assert cluster[1].commit_index == 1, "the cut-off leader commits nothing alone"
    assert cluster[1].status().configuration == cluster.configuration
    cluster.elect(2, among=[2, 3, 4, 5])
    cluster.tick(2)
    cluster.settle()
    assert all(
        peer.core.status().configuration == cluster.configuration for peer in cluster.peers.values()
    )


def led_by_successor_with_change():
    """Return a cluster that 2 leads; its log has a change of 1 that member 3 lacks."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r3"))
    cluster.flush(1)
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.drop()
    cluster[2].campaign()
    cluster.flush(2)
    cluster.deliver(to(3))
    cluster.flush(3)
    cluster.deliver(to(2))
    return cluster


def test_a_change_in_the_log_of_a_new_leader_delays_the_next():
    cluster = led_by_successor_with_change()
    assert cluster[2].role is RaftRole.LEADER
    fault = cluster[2].propose_conf_change(change("l1"))
    assert fault is ConfChangeFault.UNAPPLIED_CHANGE


def test_a_committed_change_of_the_previous_leader_delays_the_next_until_it_is_applied():
    cluster = led_by_successor_with_change()
    peer = cluster.peers[2]
    cluster.network += peer.take_ready()
    while peer.append_work:
        cluster.network += peer.sync()
    # Member 3 lacks the entries that member 1 sent, so its rejection comes first.
    for _ in range(3):
        cluster.deliver(to(3))
        cluster.flush(3)
        cluster.deliver(to(2))
        cluster.network += peer.take_ready()
    assert peer.core.commit_index == peer.core.last_index
    assert peer.apply_work, "committed, but not applied"
    assert peer.core.propose_conf_change(change("l1")) is ConfChangeFault.UNAPPLIED_CHANGE


def test_a_change_waits_for_the_first_commit_of_the_leader():
    """Before its first commit, a leader does not know which entries earlier leaders committed."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    cluster[2].campaign()
    cluster.flush(2)
    cluster.deliver(to(3))
    cluster.flush(3)
    cluster.deliver(to(2))
    assert cluster[2].role is RaftRole.LEADER
    assert cluster[2].applied_index == 2
    assert cluster[2].propose_conf_change(change("r1")) is ConfChangeFault.UNAPPLIED_CHANGE
    cluster.settle()
    assert cluster[2].propose_conf_change(change("r1")) is None


@pytest.mark.parametrize("changes", ["r3 l3", "r2 v2"])
def test_a_member_removed_and_added_again_in_one_change_keeps_its_progress(changes):
    """A member id belongs to one data directory forever, so its acknowledgements stay valid."""
    cluster = Cluster(3)
    cluster.elect(1)
    assert cluster[1].propose_conf_change(change("r3 l3")) is None
    cluster.settle()
    before = cluster[1].status().progress
    assert before[2].match == before[3].match == cluster[1].last_index
    cluster[1].apply_conf_change(change(changes))
    after = cluster[1].status().progress
    assert [after[each].match for each in (2, 3)] == [before[each].match for each in (2, 3)]


def test_a_refused_change_is_replaced_by_an_empty_entry():
    cluster = Cluster(3)
    cluster.elect(1)
    assert cluster[1].propose_conf_change(LEAVE_JOINT) is ConfChangeFault.NOT_JOINT
    cluster.settle()
    entry = cluster.peers[1].disk.applied[-1]
    assert (entry.index, entry.kind, entry.data) == (2, EntryKind.NORMAL, b"")


def test_a_refused_change_does_not_count_as_uncommitted():
    cluster = Cluster(3, uncommitted_bytes_max=10)
    cluster.elect(1)
    assert cluster[1].propose_conf_change(change("r1 r2 r3")) is ConfChangeFault.NO_VOTERS_AFTER
    cluster[1].propose(b"x" * 10)
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"x")


def test_only_the_first_of_several_forwarded_changes_is_made():
    cluster = Cluster(3)
    cluster.elect(1)
    changes = [Entry(0, 0, encode(change(f"l{each}")), EntryKind.CONF_CHANGE_V2) for each in (2, 3)]
    cluster[1].step(Message(K.PROPOSE, 1, 2, entries=(Entry(0, 0, b"x"), *changes)))
    cluster.flush(1)
    kinds = [entry.kind for entry in cluster.peers[1].disk.entries(2, 5, 1 << 20)]
    assert kinds == [EntryKind.NORMAL, EntryKind.CONF_CHANGE_V2, EntryKind.NORMAL]
    assert cluster.peers[1].core._member.pending_change_index == 3
    cluster.settle()
    assert cluster[1].status().configuration == ConfState((1, 3), (2,))


def test_a_change_that_removes_the_last_voter_is_refused():
    cluster = Cluster(1)
    cluster.elect(1)
    assert cluster[1].propose_conf_change(change("r1")) is ConfChangeFault.NO_VOTERS_AFTER


def test_an_invalid_change_stops_the_member_when_it_is_applied():
    with pytest.raises(ConfChangeInvalid):
        Cluster(3)[1].apply_conf_change(LEAVE_JOINT)


def in_joint_during_transfer(cluster):
    """Let member 1 enter a joint configuration and transfer leadership.

    During the transfer, member 1 drops the proposal to leave the joint configuration.
    """
    cluster.elect(1)
    cluster[1].propose_conf_change(change("l3", ConfChangeTransition.JOINT_IMPLICIT))
    cluster.flush(1)
    cluster.deliver()
    cluster.flush(2, 3)
    cluster.deliver(to(1))
    cluster[1].transfer_leader(2)
    cluster.flush(1)
    assert cluster[1].status().configuration.auto_leave
    assert cluster[1].last_index == 2


def test_the_next_leader_leaves_the_joint_configuration():
    cluster = Cluster(3)
    in_joint_during_transfer(cluster)
    order = cluster.drop(of_kind(K.TIMEOUT_NOW))
    cluster.settle()
    cluster[2].step(order[0])
    cluster.settle()
    assert cluster[2].role is RaftRole.LEADER
    assert cluster[2].status().configuration == ConfState((1, 2), (3,))


def timeout_now_behind_change(text, learners=()):
    """Send TIMEOUT_NOW to member 3 while it has a committed change to apply."""
    cluster = Cluster(3, learners=learners)
    cluster.elect(1)
    assert cluster[1].propose_conf_change(change(text)) is None
    cluster.settle(among=[1, 2])
    peer = cluster.peers[3]
    entries = tuple(cluster.peers[1].disk.entries(2, 3, 1 << 20))
    peer.core.step(Message(K.APPEND, 3, 1, 1, 1, 1, entries, 2))
    peer.take_ready()
    while peer.append_work:
        peer.sync()
    peer.take_ready()
    assert (peer.core.commit_index, peer.core.applied_index) == (2, 1)
    peer.core.step(Message(K.TIMEOUT_NOW, 3, 1, 1))
    assert peer.core.role is RaftRole.FOLLOWER
    return cluster, peer


@pytest.mark.parametrize("text", ["v3", "l2"])
def test_a_timeout_now_waits_until_a_committed_change_is_applied(text):
    """The change may promote the member to a voter."""
    cluster, peer = timeout_now_behind_change(text, [3] if text == "v3" else [])
    while peer.apply_work:
        peer.apply()
    assert peer.core.role is RaftRole.CANDIDATE
    cluster.settle()
    assert cluster[3].role is RaftRole.LEADER


def test_a_timeout_now_is_dropped_if_the_member_does_not_vote_after_the_change():
    _, peer = timeout_now_behind_change("l3")
    while peer.apply_work:
        peer.apply()
    assert peer.core.role is RaftRole.FOLLOWER
    again = Entry(1, 3, encode(change("v3")), EntryKind.CONF_CHANGE_V2)
    peer.core.step(Message(K.APPEND, 3, 1, 1, 1, 2, (again,), 3))
    while peer.take_ready() or peer.append_work:
        peer.sync()
    peer.apply()
    assert peer.core.status().configuration == ConfState((1, 2, 3))
    assert peer.core.role is RaftRole.FOLLOWER, "no further TIMEOUT_NOW came"


def test_a_timeout_now_ends_with_its_term():
    _, peer = timeout_now_behind_change("l2")
    peer.core.step(Message(K.HEARTBEAT, 3, 2, 2))
    while peer.apply_work:
        peer.apply()
    assert peer.core.applied_index == 2
    assert peer.core.role is RaftRole.FOLLOWER


def test_a_joint_configuration_is_left_after_a_failed_transfer():
    cluster = Cluster(3)
    in_joint_during_transfer(cluster)
    cluster.drop(of_kind(K.TIMEOUT_NOW))
    cluster.tick(1, 10)
    cluster.settle()
    assert cluster[1].role is RaftRole.LEADER
    assert cluster[1].status().configuration == ConfState((1, 2), (3,))


def test_a_learner_gets_entries_but_does_not_count():
    cluster = Cluster(4, learners=[3, 4])
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle(among=[1, 3, 4])
    assert cluster[1].commit_index == 1
    cluster.tick(1)
    cluster.settle()
    assert cluster.applied(3) == [b"x"]


def test_a_removed_leader_steps_down():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r1"))
    cluster.settle()
    assert cluster[1].role is RaftRole.FOLLOWER
    assert cluster[2].status().configuration == ConfState((2, 3))
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"x")
    cluster.tick(1, 100)
    assert cluster[1].role is RaftRole.FOLLOWER
    cluster.elect(2, among=[2, 3])


@pytest.mark.parametrize("pre_vote", [True, False])
def test_the_only_remaining_voter_learns_its_configuration_from_a_refused_vote(pre_vote):
    """The leader removes itself and others, and its last message is lost.

    The remaining voter would ask the old voters forever, because they have longer logs.
    """
    cluster = Cluster(3, pre_vote=pre_vote)
    cluster.elect(2)
    cluster[2].propose_conf_change(change("r2 r3"))
    cluster.flush(2)
    while cluster[2].role is RaftRole.LEADER:
        cluster.deliver()
        cluster.flush(1, 3)
        cluster.deliver()
        cluster[2].propose(b"more than 1 will have")
        cluster.network += cluster.peers[2].take_ready()
        cluster.drop(lambda m: m.to == 1 and any(e.index > 8 for e in m.entries))
        cluster.flush(2)
    cluster.drop(to(1))
    assert cluster[2].status().configuration == ConfState((1,))
    assert cluster[1].status().configuration.voters_outgoing == (1, 2, 3)
    assert cluster[1].last_index < cluster[2].last_index
    for _ in range(3):
        cluster.tick(1, 20)
        cluster.settle()
    assert cluster[1].role is RaftRole.LEADER
    assert cluster[1].status().configuration == ConfState((1,))


def test_a_refused_vote_commits_no_entry_that_differs():
    cluster = Cluster(3)
    log = [Entry(1, 1), Entry(1, 2), Entry(2, 3)]
    cluster.peers[1].disk.store(HardState(2), log, None)
    cluster.crash(1)
    cluster[1].campaign()
    cluster.flush(1)
    for said in ((3, 3), (2, 2), (9, 9)):
        refusal = Message(K.VOTE_REPLY, 1, 2, 3, reject=True, context=Struct(">QQ").pack(*said))
        cluster[1].step(refusal)
        assert cluster[1].commit_index == 0
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 3, reject=True, context=Struct(">QQ").pack(1, 2)))
    assert cluster[1].commit_index == 2
    assert cluster[1].role is RaftRole.CANDIDATE


def test_a_candidate_that_learns_of_a_committed_change_gives_up():
    """The candidate would count votes by an outdated configuration."""
    cluster = Cluster(3)
    log = [Entry(1, 1), Entry(1, 2, encode(change("r3")), EntryKind.CONF_CHANGE_V2)]
    cluster.peers[1].disk.store(HardState(1), log, None)
    cluster.crash(1)
    cluster[1].campaign()
    cluster.flush(1)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 2, reject=True, context=Struct(">QQ").pack(1, 2)))
    assert cluster[1].role is RaftRole.FOLLOWER
    cluster.flush(1)
    assert cluster[1].status().configuration == ConfState((1, 2))


def test_a_leader_that_becomes_a_learner_steps_down():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("l1"))
    cluster.settle()
    assert cluster[1].role is RaftRole.FOLLOWER
    assert cluster[1].status().configuration == ConfState((2, 3), (1,))


def test_a_removed_leader_that_stays_does_not_count_itself():
    cluster = Cluster(3, step_down_on_removal=False)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r1"))
    cluster.flush(1)
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    cluster[1].propose(b"x")
    cluster.settle(among=[1, 2])
    assert cluster[1].status().configuration == ConfState((2, 3))
    assert cluster[1].commit_index == 2, "member 2 alone is no majority of 2 and 3"
    with pytest.raises(ProposalDropped) as raised:
        cluster[1].propose(b"y")
    assert raised.value.reason is DropReason.NOT_A_MEMBER


def test_a_removed_leader_that_stays_may_still_be_storing_entries():
    """In synchronous mode a leader learns of its removal and of its last write in one Ready."""
    disk = MemoryLog(ConfState((1, 2)))
    config = RaftConfig(
        1,
        pre_vote=False,
        check_quorum=False,
        async_storage_writes=False,
        step_down_on_removal=False,
    )
    core = RaftCore(config, disk, lambda _: 0)

    def settle():
        while core.has_ready():
            ready = core.ready()
            disk.store(ready.hard_state, ready.entries, None)
            for wanted in filter(None, map(of_entry, ready.committed)):
                core.apply_conf_change(wanted)
            core.advance()

    core.campaign()
    settle()
    core.step(Message(K.VOTE_REPLY, 1, 2, 1))
    settle()
    core.step(Message(K.APPEND_REPLY, 1, 2, 1, index=1))
    settle()
    assert core.propose_conf_change(change("r1")) is None
    settle()
    core.propose(b"x")
    core.step(Message(K.APPEND_REPLY, 1, 2, 1, index=2))
    settle()
    assert core.status().configuration == ConfState((2,))
    assert (core.role, core.last_index) == (RaftRole.LEADER, 3)
    assert core.commit_index == 2, "the leader's own copy of entry 3 does not count"


def test_a_new_member_counts_as_active_until_the_next_check():
    cluster = Cluster(2, check_quorum=True)
    cluster.elect(1)
    cluster.tick(1, 9)
    cluster.settle()
    cluster[1].propose_conf_change(change("v3"))
    cluster.settle()
    cluster.drop()
    assert cluster[1].status().progress[3].recent_active
    cluster.tick(1)
    assert cluster[1].role is RaftRole.LEADER


@pytest.mark.parametrize("text", ["r3", "l3"])
def test_a_transfer_to_a_member_that_lost_its_vote_is_cancelled(text):
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change(text))
    cluster[1].transfer_leader(3)
    cluster.settle(among=[1, 2])
    assert cluster[1].status().transferee == 0
    cluster[1].propose(b"x")


def test_an_answer_of_a_removed_member_is_dropped():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r3"))
    cluster.settle()
    before = cluster[1].status()
    cluster[1].step(Message(K.APPEND_REPLY, 1, 3, 1, index=2))
    assert cluster[1].status() == before


def test_a_change_is_committed_by_the_configuration_before_it():
    cluster = Cluster(2)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r2"))
    cluster.settle(among=[1])
    assert cluster[1].commit_index == 1
    cluster.tick(1)
    cluster.settle()
    assert cluster[1].status().configuration == ConfState((1,))


def test_a_change_that_shrinks_the_group_commits_entries_stored_on_the_smaller_group():
    """No further member is left that would acknowledge the entries."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r2"))
    cluster[1].propose(b"x")
    cluster.flush(1)
    cluster.deliver(lambda m: m.to == 2 and m.entries[0].index == 2)
    cluster.drop(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    cluster.flush(1)
    assert cluster[1].status().configuration == ConfState((1,))
    assert cluster.applied(1) == [b"x"]


def test_a_restart_uses_the_configuration_of_the_applied_entries():
    """A change in the unapplied tail is not in force."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_conf_change(change("r3"))
    cluster.flush(1)
    cluster.crash(1)
    assert cluster[1].status().configuration == cluster.configuration
    assert cluster[1].last_index == 2
