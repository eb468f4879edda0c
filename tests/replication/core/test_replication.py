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


def test_an_entry_is_committed_by_a_quorum_and_applied_by_all():
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


def test_a_deposed_leader_does_not_send_its_last_proposals():
    cluster = Cluster(3)
    cluster.elect(1)
    leader = cluster[1]
    leader.propose_unsent(b"a")
    leader.step(Message(MessageKind.HEARTBEAT, MemberId(1), MemberId(2), Term(leader.term + 1)))
    sent = cluster.peers[1].take_ready()
    assert [m.kind for m in sent if m.kind is MessageKind.APPEND] == []


def test_appends_are_sent_before_the_leader_has_synced():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    peer = cluster.peers[1]
    cluster.network += peer.take_ready()
    assert [m.to for m in appends(cluster)] == [2, 3]
    cluster.deliver(to(2, 3))
    cluster.flush(2, 3)
    cluster.deliver(to(1))
    assert peer.core.commit_index == 2, "two followers have the entry on disk"
    assert len(peer.append_work) == 1
    peer.take_ready()
    assert not peer.apply_work, "the leader applies only entries that it has synced"


def test_a_leader_counts_itself_only_after_its_sync():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    peer = cluster.peers[1]
    cluster.network += peer.take_ready()
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    assert peer.core.commit_index == 1, "only one of three disks has the entry"
    peer.sync()
    assert peer.core.commit_index == 2


def test_a_follower_acknowledges_only_durable_entries():
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


def test_the_commit_index_of_a_heartbeat_is_at_most_the_match_index():
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


def test_a_heartbeat_reports_a_commit_whose_append_was_lost():
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


def test_a_follower_commits_only_entries_that_the_message_has_checked():
    cluster = Cluster(3)
    with_log(cluster, 3, 1, 1, 1)
    cluster[3].step(Message(K.APPEND, 3, 1, 2, 1, 1, (), 3))
    assert cluster[3].commit_index == 1
    cluster[3].step(Message(K.APPEND, 3, 1, 2, 1, 1, (Entry(2, 2),), 3))
    assert cluster[3].commit_index == 2


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting():
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


def test_an_old_append_truncates_nothing():
    """Failure A of PySyncObj, raftos#26: a repeated message removed acknowledged entries."""
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
def test_an_append_below_the_commit_index_is_answered_with_the_commit_index(compacted):
    """The entries that the append would check are committed and may be compacted."""
    cluster = Cluster(3)
    cluster.elect(1)
    for _ in range(4):
        cluster[1].propose(b"x")
    cluster.settle()
    cluster.peers[2].disk.compact(compacted)
    cluster[2].step(Message(K.APPEND, 2, 1, 1, 1, 1, (Entry(1, 2, b"x"),), 5))
    cluster.flush(2)
    assert [(m.kind, m.index, m.reject) for m in cluster.network] == [(K.APPEND_REPLY, 5, False)]


def test_entries_of_an_earlier_term_count_as_durable_once_they_are_synced():
    peer = Cluster(3).peers[2]
    peer.core.step(Message(K.APPEND, 2, 1, 3, 0, 0, (Entry(1, 1), Entry(1, 2))))
    peer.take_ready()
    while peer.append_work:
        peer.sync()
    assert peer.core._member.log.unstable.entries == []


def test_entries_synced_in_an_earlier_term_are_reported_with_the_next_write():
    """The report of these entries belongs to the earlier term and is ignored."""
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


def test_a_late_report_of_a_write_is_ignored_for_entries_that_were_replaced_and_restored():
    """The ABA problem: an entry is replaced and put back while three writes are in progress."""
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
    assert unstable.offset == 1, "the disk still has to write b"
    peer.sync()
    assert unstable.offset == 1
    peer.sync()
    assert unstable.offset == 4
    assert unstable.entries == []


def test_an_acknowledgement_of_an_earlier_leadership_does_not_count():
    """Failure C of PySyncObj: a late reply caused a commit with two copies of five."""
    cluster = Cluster(5)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster[1].propose(b"y")
    cluster.flush(1)
    cluster.deliver(to(3))
    cluster.flush(3)
    late = cluster.drop(to(1))  # the acknowledgements by member 3 of entries 2 and 3
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
    assert (before.last, before.hard_state.commit) == (3, 2), "members 1 and 4 have entry 3"
    assert [m.index for m in late] == [2, 3]
    for message in late:
        cluster[1].step(message)
    assert cluster[1].status() == before


def test_the_match_index_does_not_go_back():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    for index in (1, 0):
        cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 1, index=index))
    cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 1, 1, 1, reject=True, reject_hint=0))
    progress = cluster[1].status().progress[2]
    assert (progress.match, progress.next, progress.state) == (2, 3, ProgressState.REPLICATE)


def test_an_acknowledgement_of_an_unsent_entry_stops_the_leader():
    cluster = Cluster(3)
    cluster.elect(1)
    with pytest.raises(AssertionError, match="never sent"):
        cluster[1].step(Message(K.APPEND_REPLY, 1, 2, 1, index=99))


def test_a_leader_finds_the_last_matching_entry_with_one_rejection_per_term():
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


def test_a_new_leader_overwrites_uncommitted_entries():
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


def test_an_acknowledgement_releases_as_many_messages_as_the_window_holds():
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


def test_an_empty_append_is_sent_only_for_a_new_commit_index():
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
    assert appends(cluster) == [], "the commit index was sent already"


def test_a_full_window_stops_appends_until_an_acknowledgement():
    cluster = Cluster(3, inflight_messages_max=2)
    cluster.elect(1)
    for _ in range(4):
        cluster[1].propose(b"x")
    cluster.flush(1)
    assert [len(m.entries) for m in appends(cluster) if m.to == 2] == [1, 1]
    cluster.settle()
    assert cluster.applied(2) == [b"x"] * 4


def test_the_uncommitted_tail_is_limited_and_freed_when_applied():
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


def test_the_size_of_the_uncommitted_tail_counts_unapplied_entries_and_is_never_negative():
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
    assert len(peer.apply_work[0].entries) == 1, "at most 10 bytes are applied at a time"
    peer.apply()
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"c" * 11)
    cluster[1].propose(b"c" * 10)
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"d")


def test_a_new_leader_does_not_count_the_proposals_of_its_predecessors():
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


def test_the_uncommitted_tail_starts_empty_in_each_leadership():
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


def test_proposals_are_dropped_without_a_leader():
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


def test_applied_entries_are_committed_even_if_the_commit_index_was_not_synced():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle()
    disk = cluster.peers[2].disk
    disk.store(HardState(1, 1, 0), (), None)
    cluster.crash(2)
    assert cluster[2].commit_index == cluster[2].applied_index == 2


def test_missing_durable_entries_stop_the_member():
    cluster = Cluster(3)
    cluster.peers[1].disk.store(HardState(1, 1, 7), (), None)
    with pytest.raises(AssertionError, match="missing"):
        cluster.crash(1)


def test_an_unreachable_report_for_an_unknown_or_paused_member_changes_nothing():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].report_unreachable(3)
    before = cluster[1].status()
    for member in (9, 3):
        cluster[1].report_unreachable(member)
    assert cluster[1].status() == before


def test_an_unreachable_member_is_probed_and_returns():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].report_unreachable(3)
    assert cluster[1].status().progress[3].state is ProgressState.PROBE
    cluster.tick(1)
    cluster.settle()
    assert cluster[1].status().progress[3].state is ProgressState.REPLICATE
