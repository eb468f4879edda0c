"""Logs become equal, and exactly the entries on a quorum are committed."""

import pytest

from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import (
    Entry,
    HardState,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    Term,
)
from tests.replication.core.cluster import Cluster, between, of_kind, to, with_log

K = MessageKind


def appends(cluster):
    return [m for m in cluster.network if m.kind is K.APPEND]


def test_entry_is_committed_by_a_quorum_and_applied_by_all():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    assert [cluster.applied(member) for member in (1, 2, 3)] == [[b"x"]] * 3


def test_several_entries_share_a_message_and_a_sync():
    cluster = Cluster(3)
    cluster.elect(1)
    for data in (b"a", b"b", b"c"):
        cluster[1].propose_unsent(data)
    peer = cluster.peers[1]
    leaving = peer.take_ready()
    assert [len(m.entries) for m in leaving] == [3, 3]
    assert len(peer.append_work) == 1


def test_proposals_that_share_a_message_are_committed():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose_unsent(b"a")
    cluster[1].propose_unsent(b"b")
    cluster.settle(among=[1, 2])
    assert cluster.applied(1) == [b"a", b"b"]


def test_a_leader_that_is_deposed_does_not_send_its_last_proposals():
    cluster = Cluster(3)
    cluster.elect(1)
    leader = cluster[1]
    leader.propose_unsent(b"a")
    leader.step(Message(MessageKind.HEARTBEAT, MemberId(1), MemberId(2), Term(leader.term + 1)))
    sent = cluster.peers[1].take_ready()
    assert [m.kind for m in sent if m.kind is MessageKind.APPEND] == []


def test_appends_leave_before_the_leader_has_synced():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    peer = cluster.peers[1]
    cluster.network += peer.take_ready()
    assert [m.to for m in appends(cluster)] == [2, 3]
    cluster.deliver(to(2, 3))
    cluster.flush(2, 3)
    cluster.deliver(to(1))
    assert peer.core.commit_index == 2, "two others have it on disk"
    assert len(peer.append_work) == 1
    peer.take_ready()
    assert not peer.apply_work, "it applies what it has synced itself"


def test_leader_counts_itself_only_once_it_has_synced():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    peer = cluster.peers[1]
    cluster.network += peer.take_ready()
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    assert peer.core.commit_index == 1, "one of three disks has it"
    peer.sync()
    assert peer.core.commit_index == 2


def test_follower_acknowledges_only_what_it_has_synced():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.flush(1)
    cluster.deliver(to(2))
    peer = cluster.peers[2]
    assert peer.take_ready() == []
    assert peer.disk.last_index() == 1
    assert [(m.kind, m.index) for m in peer.sync()] == [(K.APPEND_REPLY, 2)]
    assert peer.disk.last_index() == 2


def test_commit_index_of_a_heartbeat_stays_within_what_matches():
    """A follower may have an uncommitted tail of another leader below the leader's commit index."""
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1)
    with_log(cluster, 1, 1, 2)
    with_log(cluster, 2, 1, 2)
    cluster.elect(1, among=[1, 2])
    assert cluster[1].commit_index == 3
    cluster.tick(1)
    cluster.flush(1)
    assert [m.commit for m in cluster.network if m.kind is K.HEARTBEAT] == [3, 0]
    cluster.deliver(of_kind(K.HEARTBEAT))
    assert cluster[3].commit_index == 0


def test_heartbeat_tells_a_follower_of_a_commit_whose_append_was_lost():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.flush(1)
    cluster.deliver()
    cluster.flush(2, 3)
    cluster.deliver(to(1))
    cluster.flush(1)
    assert [m.commit for m in cluster.drop()] == [2, 2]
    assert cluster[3].commit_index == 1
    cluster.tick(1)
    cluster.settle()
    assert cluster.applied(3) == [b"x"]


def test_follower_commits_no_further_than_the_message_has_checked():
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1)
    cluster[3].step(Message(K.APPEND, 3, 1, 2, 1, 1, (), 3))
    assert cluster[3].commit_index == 1
    cluster[3].step(Message(K.APPEND, 3, 1, 2, 1, 1, (Entry(2, 2),), 3))
    assert cluster[3].commit_index == 2


def test_entry_of_an_earlier_term_is_not_committed_by_counting():
    """Raft paper, 5.4.2 and figure 8."""
    cluster = Cluster(3)
    with_log(cluster, 1, 1, 2)
    with_log(cluster, 2, 1, 2)
    cluster[1].campaign()
    cluster.flush(1)
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    assert cluster[1].role is RaftRole.LEADER
    cluster.flush(1)
    cluster.drop()
    cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 3, index=2))
    assert cluster[1].status().progress[2].match == 2
    assert cluster[1].commit_index == 0
    cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 3, index=3))
    assert cluster[1].commit_index == 3


def test_old_append_cuts_nothing_off():
    """PySyncObj A, raftos#26: acknowledged entries were lost to a message delivered twice."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"one")
    cluster.flush(1)
    old = [m for m in cluster.network if between(1, 2)(m)]
    cluster.deliver()
    cluster[1].propose(b"two")
    cluster.settle()
    for message in old:
        cluster[2].step(message)
    cluster.flush(2)
    assert cluster[2].last_index == 3
    assert cluster.peers[2].log() == cluster.peers[1].log()


@pytest.mark.parametrize("compacted", [1, 4])
def test_append_below_the_commit_index_is_answered_with_it(compacted):
    """What it would check is committed, and perhaps compacted away here."""
    cluster = Cluster(3)
    cluster.elect(1)
    for _ in range(4):
        cluster[1].propose(b"x")
    cluster.settle()
    cluster.peers[2].disk.compact(compacted)
    cluster[2].step(Message(K.APPEND, 2, 1, 1, 1, 1, (Entry(1, 2, b"x"),), 5))
    cluster.flush(2)
    assert [(m.kind, m.index, m.reject) for m in cluster.network] == [(K.APPEND_REPLY, 5, False)]


def test_entries_of_an_earlier_term_are_known_to_be_synced_when_they_are():
    peer = Cluster(3).peers[2]
    peer.core.step(Message(K.APPEND, 2, 1, 3, 0, 0, (Entry(1, 1), Entry(1, 2))))
    peer.take_ready()
    while peer.append_work:
        peer.sync()
    assert peer.core._member.log.unstable.entries == []


def test_what_was_synced_in_an_earlier_term_is_reported_with_the_next_write():
    """Its own report, of the earlier term, says nothing any more."""
    peer = Cluster(3).peers[2]
    peer.core.step(Message(K.APPEND, 2, 1, 1, 0, 0, (Entry(1, 1), Entry(1, 2)), 2))
    peer.take_ready()
    peer.core.step(Message(K.HEARTBEAT, 2, 3, 2))
    peer.take_ready()
    while peer.append_work:
        peer.sync()
    assert peer.core._member.log.unstable.entries == []
    peer.take_ready()
    assert len(peer.apply_work) == 1


def test_late_report_of_a_write_says_nothing_about_entries_that_came_back():
    """The ABA problem: an entry is replaced and put back while three writes are under way."""
    peer = Cluster(3).peers[2]
    unstable = peer.core._member.log.unstable
    for term, leader, entries in (
        (1, 1, (Entry(1, 1), Entry(1, 2, b"a"))),
        (2, 3, (Entry(1, 1), Entry(2, 2, b"b"))),
        (3, 1, (Entry(1, 1), Entry(1, 2, b"a"), Entry(3, 3))),
    ):
        peer.core.step(Message(K.APPEND, 2, leader, term, 0, 0, entries))
        peer.take_ready()
    peer.sync()
    assert unstable.offset == 1, "the disk has yet to write b over it"
    peer.sync()
    assert unstable.offset == 1
    peer.sync()
    assert unstable.offset == 4
    assert unstable.entries == []


def test_acknowledgement_of_an_earlier_leadership_does_not_count():
    """PySyncObj C: a late reply made a commit with two copies of five."""
    cluster = Cluster(5)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster[1].propose(b"y")
    cluster.flush(1)
    cluster.deliver(to(3))
    cluster.flush(3)
    late = cluster.drop(to(1))  # the link from 3 stalls with its acknowledgements of 2 and 3
    cluster.drop()
    cluster.elect(2, among=[2, 4, 5])
    cluster.tick(2)
    cluster.settle()
    assert [len(peer.log()) for peer in cluster.peers.values()] == [2] * 5
    cluster[1].campaign()
    cluster.flush(1)
    cluster.deliver()
    cluster.flush(2, 3, 4, 5)
    cluster.deliver()
    cluster.flush(1)
    cluster.deliver(to(4))
    cluster.flush(4)
    cluster.deliver(to(1))
    before = cluster[1].status()
    assert (before.last, before.hard_state.commit) == (3, 2), "1 and 4 have entry 3"
    assert [m.index for m in late] == [2, 3]
    for message in late:
        cluster[1].step(message)
    assert cluster[1].status() == before


def test_match_index_does_not_go_back():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    for index in (1, 0):
        cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 1, index=index))
    cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 1, 1, 1, reject=True, reject_hint=0))
    progress = cluster[1].status().progress[2]
    assert (progress.match, progress.next, progress.state) == (2, 3, ProgressState.REPLICATE)


def test_acknowledgement_of_what_was_never_sent_stops_the_leader():
    cluster = Cluster(3)
    cluster.elect(1)
    with pytest.raises(AssertionError, match="never sent"):
        cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 1, index=99))


def test_leader_finds_the_place_where_logs_meet_with_one_rejection_for_each_term():
    """Raft paper, 5.3: the follower's hint skips whole terms, not single entries."""
    cluster = Cluster(3)
    with_log(cluster, 1, *[1] * 10, *[4] * 10)
    with_log(cluster, 2, *[1] * 10, *[4] * 10)
    with_log(cluster, 3, *[1] * 10, *[2] * 30)
    cluster.elect(1, among=[1, 2])
    rejections = 0
    cluster.tick(1)
    while cluster.flush() or cluster.network:
        rejections += sum(m.reject for m in cluster.network)
        cluster.deliver()
    assert rejections == 1
    assert cluster.peers[3].log() == cluster.peers[1].log()


def test_new_leader_overwrites_what_was_never_committed():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"lost")
    cluster.flush(1)
    cluster.drop()
    cluster.elect(2, among=[2, 3])
    cluster[2].propose(b"kept")
    cluster.settle(among=[2, 3])
    cluster.tick(2)
    cluster.settle()
    assert [cluster.applied(member) for member in (1, 2, 3)] == [[b"kept"]] * 3
    assert cluster[1].role is RaftRole.FOLLOWER


def test_acknowledgement_lets_as_many_messages_go_as_the_window_holds():
    cluster = Cluster(3, inflight_messages_max=3, message_bytes_max=1)
    cluster.elect(1)
    cluster.drop()
    for _ in range(9):
        cluster[1].propose(b"x")
    cluster.flush(1)
    assert len([m for m in appends(cluster) if m.to == 2]) == 3
    cluster.deliver(to(2))
    cluster.flush(2)
    *_, last = cluster.drop()
    cluster[1].step(last)
    cluster.flush(1)
    sent = [m for m in appends(cluster) if m.to == 2]
    assert [len(m.entries) for m in sent] == [1, 1, 1]


def test_empty_append_leaves_when_the_commit_index_is_news_and_only_then():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.flush(1)
    cluster.deliver(to(2, 3))
    cluster.flush(2, 3)
    cluster.deliver(between(2, 1))
    cluster.flush(1)
    assert sorted((m.to, m.commit, len(m.entries)) for m in appends(cluster)) == [
        (2, 2, 0),
        (3, 2, 0),
    ]
    cluster.drop(to(2, 3))
    cluster.deliver(between(3, 1))
    cluster.flush(1)
    assert appends(cluster) == [], "it was told already"


def test_full_window_stops_appends_until_something_is_acknowledged():
    cluster = Cluster(3, inflight_messages_max=2)
    cluster.elect(1)
    for _ in range(4):
        cluster[1].propose(b"x")
    cluster.flush(1)
    assert [len(m.entries) for m in appends(cluster) if m.to == 2] == [1, 1]
    cluster.settle()
    assert cluster.applied(2) == [b"x"] * 4


def test_uncommitted_tail_is_bounded_and_freed_when_applied():
    cluster = Cluster(3, uncommitted_bytes_max=10)
    cluster.elect(1)
    for round_ in range(3):
        cluster[1].propose(b"x" * 10)
        with pytest.raises(ProposalDropped) as raised:
            cluster[1].propose(b"x")
        assert raised.value.reason is DropReason.TOO_MANY_UNCOMMITTED
        cluster[1].propose(b"")
        cluster.settle()
        assert len(cluster.applied(3)) == round_ + 1


def test_uncommitted_tail_counts_what_is_not_applied_yet_and_no_less_than_nothing():
    cluster = Cluster(3, uncommitted_bytes_max=20, committed_bytes_max=10)
    cluster.elect(1)
    cluster[1].propose(b"x" * 10)
    cluster[1].propose(b"y" * 10)
    cluster.settle(among=[1])
    cluster.elect(2, among=[2, 3])
    cluster[2].propose(b"z" * 4)
    cluster.tick(2)
    cluster.settle()
    cluster.elect(1)
    cluster[1].propose(b"a" * 10)
    cluster[1].propose(b"b" * 10)
    peer = cluster.peers[1]
    cluster.network += peer.take_ready()
    while peer.append_work:
        cluster.network += peer.sync()
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    peer.take_ready()
    assert len(peer.apply_work[0].entries) == 1, "ten bytes at a time"
    peer.apply()
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"c" * 11)
    cluster[1].propose(b"c" * 10)
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"d")


def test_new_leader_does_not_count_what_its_predecessors_proposed():
    cluster = Cluster(3, uncommitted_bytes_max=20)
    cluster.elect(1)
    cluster[1].propose(b"x" * 15)
    cluster.flush(1)
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.drop()
    cluster.elect(2, among=[2, 3])
    cluster.settle(among=[2, 3])
    cluster[2].propose(b"y" * 20)
    with pytest.raises(ProposalDropped):
        cluster[2].propose(b"z")


def test_uncommitted_tail_starts_empty_in_each_leadership():
    cluster = Cluster(3, uncommitted_bytes_max=10)
    cluster.elect(1)
    cluster[1].propose(b"x" * 10)
    cluster.flush(1)
    cluster.drop()
    cluster.elect(2, among=[2, 3])
    cluster.tick(2)
    cluster.settle()
    cluster.elect(1)
    cluster[1].propose(b"y" * 10)
    cluster.settle()
    assert cluster.applied(1)[-1] == b"y" * 10


def test_proposals_are_dropped_where_nobody_can_take_them():
    cluster = Cluster(3)
    for elected, reason in ((False, DropReason.NO_LEADER), (True, DropReason.NOT_LEADER)):
        if elected:
            cluster.elect(1)
        with pytest.raises(ProposalDropped) as raised:
            cluster[2].propose(b"x")
        assert raised.value.reason is reason


def test_entries_are_applied_once_across_restarts():
    cluster = Cluster(3)
    cluster.elect(1)
    for number in range(5):
        cluster[1].propose(b"%d" % number)
        cluster.settle()
    for member in (1, 2, 3):
        cluster.crash(member)
    cluster.elect(2)
    expected = [b"%d" % number for number in range(5)]
    assert [cluster.applied(member) for member in (1, 2, 3)] == [expected] * 3


def test_what_was_applied_is_committed_even_if_the_commit_index_was_not_synced():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    disk = cluster.peers[2].disk
    disk.store(HardState(1, 1, 0), (), None)
    cluster.crash(2)
    assert cluster[2].commit_index == cluster[2].applied_index == 2


def test_missing_synced_entries_stop_the_member():
    cluster = Cluster(3)
    cluster.peers[1].disk.store(HardState(1, 1, 7), (), None)
    with pytest.raises(AssertionError, match="missing"):
        cluster.crash(1)


def test_unreachable_stranger_or_one_that_waits_changes_nothing():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].report_unreachable(3)
    before = cluster[1].status()
    for member in (9, 3):
        cluster[1].report_unreachable(member)
    assert cluster[1].status() == before


def test_unreachable_member_is_probed_and_comes_back():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].report_unreachable(3)
    assert cluster[1].status().progress[3].state is ProgressState.PROBE
    cluster.tick(1)
    cluster.settle()
    assert cluster[1].status().progress[3].state is ProgressState.REPLICATE
