"""Leadership is transferred to a voter with a complete log, or the transfer times out."""

import pytest

from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.core.trace import MessageDropReason
from taskraft_replication.core.types import Message, MessageKind, RaftRole
from tests.replication.core.cluster import Cluster, storing_a_snapshot, to

K = MessageKind


def test_leadership_is_transferred_to_a_member_with_the_complete_log():
    cluster = Cluster(3, check_quorum=True, pre_vote=True)
    cluster.elect(1)
    cluster[1].transfer_leader(2)
    cluster.settle()
    assert (cluster[2].role, cluster[2].term) == (RaftRole.LEADER, 2)


def test_a_transfer_waits_until_the_target_has_the_whole_log():
    """Raft thesis, 3.10: a transfer drops proposals, so that the target can catch up."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle(among=[1, 2])
    cluster[1].transfer_leader(3)
    with pytest.raises(ProposalDropped) as raised:
        cluster[1].propose(b"too late")
    assert raised.value.reason is DropReason.TRANSFERRING
    cluster.flush(1)
    assert not [m for m in cluster.network if m.kind is K.TIMEOUT_NOW]
    cluster.tick(1)
    cluster.settle()
    assert cluster[3].role is RaftRole.LEADER
    assert cluster.applied(3) == [b"x"]


def test_a_transfer_waits_until_the_target_has_the_uncommitted_entries_too():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.flush(1)
    lost = cluster.drop(to(2))
    cluster[1].transfer_leader(2)
    cluster.flush(1)
    assert not [m for m in cluster.network if m.kind is K.TIMEOUT_NOW]
    for message in lost:
        cluster[2].step(message)
    cluster.flush(2)
    cluster.deliver(to(1))
    cluster.flush(1)
    assert [m.to for m in cluster.network if m.kind is K.TIMEOUT_NOW] == [2]


def test_a_transfer_times_out():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].transfer_leader(3)
    cluster.tick(1, 9)
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"x")
    cluster.tick(1)
    cluster[1].propose(b"x")


def test_a_transfer_request_without_a_leader_is_dropped():
    cluster = Cluster(3)
    cluster[2].transfer_leader(3)
    cluster.flush(2)
    assert not cluster.network
    assert cluster.peers[2].facts[-1].reason is MessageDropReason.TRANSFER_DROPPED


def test_repeating_a_transfer_request_does_not_extend_its_timeout():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].transfer_leader(3)
    cluster.tick(1, 9)
    cluster[1].transfer_leader(3)
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"too early")
    cluster.tick(1)
    before = cluster[1].status().last
    cluster[1].propose(b"x")
    assert cluster[1].status().last == before + 1


def test_a_transfer_to_the_leader_itself_cancels_a_transfer():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].transfer_leader(3)
    cluster[1].transfer_leader(1)
    cluster[1].propose(b"x")
    cluster.settle(among=[1, 2])
    assert cluster.applied(1) == [b"x"]


def test_a_transfer_has_a_whole_timeout_whenever_it_begins():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.tick(1, 9)
    cluster[1].transfer_leader(3)
    cluster.tick(1, 9)
    with pytest.raises(ProposalDropped):
        cluster[1].propose(b"x")
    cluster.tick(1)
    cluster[1].propose(b"x")


def test_leadership_is_not_transferred_to_learners_or_unknown_members():
    cluster = Cluster(3, learners=[3])
    cluster.elect(1)
    before = cluster[1].status().last
    for target in (1, 3, 9):
        cluster[1].transfer_leader(target)
        cluster[1].propose(b"x")
    cluster.settle()
    assert cluster[1].role is RaftRole.LEADER
    assert cluster[1].status().last == before + 3


def test_a_follower_forwards_a_transfer_request():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[2].transfer_leader(3)
    cluster.settle()
    assert cluster[3].role is RaftRole.LEADER


def test_a_late_timeout_now_waits_for_the_snapshot_that_came_since():
    """A snapshot may contain membership changes, which are unknown before it is installed."""
    cluster = storing_a_snapshot()
    cluster[3].step(Message(K.TIMEOUT_NOW, 3, 1, 1))
    assert cluster[3].role is RaftRole.FOLLOWER
    cluster.flush(3)
    assert cluster[3].applied_index == 2
    assert cluster[3].role is RaftRole.CANDIDATE
