"""A read sees all entries that were committed before its request."""

import pytest

from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.config import ENTRY_BYTES_MAX, RaftConfig, ReadOnly
from taskraft_replication.core.trace import MessageDropped, MessageDropReason
from taskraft_replication.core.types import Message, MessageKind, RaftRole, ReadState
from tests.replication.core.cluster import Cluster, of_kind, to

K = MessageKind


def reads(cluster, member):
    peer = cluster.peers[member]
    cluster.network += peer.take_ready()
    return peer.reads


def test_a_read_waits_for_a_quorum():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].read_index(b"a")
    assert reads(cluster, 1) == []
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    assert reads(cluster, 1) == [ReadState(1, b"a")]


def test_a_read_waits_for_a_commit_of_the_leaders_term():
    """etcd#7331: the leader may not know yet which entries earlier leaders committed."""
    cluster = Cluster(3)
    cluster.elect(2)
    cluster[2].propose(b"x")
    cluster.flush(2)
    cluster.deliver(to(1, 3))
    cluster.flush(1, 3)
    # The entry is now committed and perhaps read by a client; only member 2 knows of the commit.
    cluster.deliver(to(2))
    assert cluster[2].commit_index == 2
    cluster.network.clear()
    cluster[1].campaign()
    cluster.flush(1)
    cluster.deliver(to(3))
    cluster.flush(3)
    cluster.deliver(to(1))
    cluster[1].read_index(b"a")
    cluster.flush(1)
    cluster.deliver(of_kind(K.HEARTBEAT))
    cluster.flush(3)
    cluster.deliver(of_kind(K.HEARTBEAT_REPLY))
    assert reads(cluster, 1) == []
    cluster.settle(among=[1, 3])
    assert reads(cluster, 1) == [ReadState(3, b"a")]


def test_a_later_heartbeat_confirms_earlier_reads():
    cluster = Cluster(3)
    cluster.elect(1)
    for name in (b"a", b"b", b"c"):
        cluster[1].read_index(name)
    cluster.flush(1)
    last = cluster.network[-1]
    cluster.drop()
    cluster[last.to].step(last)
    cluster.settle()
    assert [read.context for read in reads(cluster, 1)] == [b"a", b"b", b"c"]


def test_an_earlier_heartbeat_does_not_confirm_later_reads():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].read_index(b"a")
    cluster.flush(1)
    cluster[1].read_index(b"b")
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    assert [read.context for read in reads(cluster, 1)] == [b"a"]


def test_one_member_that_answers_twice_is_no_quorum():
    cluster = Cluster(5)
    cluster.elect(1)
    cluster[1].read_index(b"a")
    cluster.flush(1)
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.network *= 3
    cluster.deliver(to(1))
    assert reads(cluster, 1) == []


def test_learners_confirm_no_reads():
    cluster = Cluster(3, learners=[3])
    cluster.elect(1)
    cluster[1].read_index(b"a")
    cluster.settle(among=[1, 3])
    assert reads(cluster, 1) == []


def test_a_read_that_waits_for_a_removed_member_is_answered():
    """No other member is left that could confirm the read."""
    cluster = Cluster(2)
    cluster.elect(1)
    cluster[1].propose_conf_change(ConfChange((MemberChange(MemberChangeKind.REMOVE, 2),)))
    cluster[1].read_index(b"a")
    cluster.flush(1)
    cluster.drop(of_kind(K.HEARTBEAT))
    cluster.deliver(to(2))
    cluster.flush(2)
    cluster.deliver(to(1))
    assert reads(cluster, 1) == []
    cluster.flush(1)
    assert cluster[1].status().configuration.voters == (1,)
    assert reads(cluster, 1) == [ReadState(1, b"a")]


def test_lost_heartbeats_are_repeated_with_the_next_tick():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].read_index(b"a")
    cluster.flush(1)
    cluster.drop()
    cluster.tick(1)
    cluster.settle()
    assert reads(cluster, 1) == [ReadState(1, b"a")]


def test_pending_reads_are_dropped_when_the_leadership_ends():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].read_index(b"a")
    cluster.elect(2, among=[1, 2, 3])
    cluster.elect(1)
    cluster.tick(1)
    cluster.settle()
    assert reads(cluster, 1) == []


def test_the_number_of_pending_reads_is_limited():
    cluster = Cluster(3, reads_pending_max=2)
    cluster.elect(1)
    for name in (b"a", b"b", b"c"):
        cluster[1].read_index(name)
    refused = cluster.peers[1].facts[-1]
    assert isinstance(refused, MessageDropped)
    assert (refused.reason, refused.message.context) == (MessageDropReason.READ_DROPPED, b"c")
    cluster.settle()
    assert [read.context for read in reads(cluster, 1)] == [b"a", b"b"]


def test_reads_that_wait_for_the_first_commit_count_towards_the_limit():
    cluster = Cluster(3, reads_pending_max=2)
    cluster[1].campaign()
    cluster.flush(1)
    cluster.deliver()
    cluster.flush(2, 3)
    cluster.deliver()
    assert cluster[1].role is RaftRole.LEADER
    for name in (b"a", b"b", b"c"):
        cluster[1].read_index(name)
    last = cluster.peers[1].facts[-1]
    assert isinstance(last, MessageDropped)
    assert last.reason is MessageDropReason.READ_DROPPED
    cluster.settle()
    assert [read.context for read in reads(cluster, 1)] == [b"a", b"b"]


def test_a_lease_read_waits_for_the_first_commit_of_the_term():
    cluster = Cluster(3, check_quorum=True, read_only=ReadOnly.LEASE_BASED)
    cluster[1].campaign()
    cluster.flush(1)
    cluster.deliver()
    cluster.flush(2, 3)
    cluster.deliver()
    cluster[1].read_index(b"a")
    assert reads(cluster, 1) == []
    cluster.settle()
    assert reads(cluster, 1) == [ReadState(1, b"a")]


def test_a_forwarded_read_is_not_forwarded_again():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[2].step(Message(K.READ_INDEX, 2, 3, context=b"a"))
    reasons = [getattr(fact, "reason", None) for fact in cluster.peers[2].facts]
    assert reasons[-1] is MessageDropReason.READ_DROPPED


def test_a_lease_read_is_answered_at_once_except_during_a_transfer():
    """etcd-io/raft#99: the next leader need not wait for the lease to end."""
    cluster = Cluster(3, check_quorum=True, read_only=ReadOnly.LEASE_BASED)
    cluster.elect(1)
    cluster[1].read_index(b"a")
    assert reads(cluster, 1) == [ReadState(1, b"a")]
    cluster[1].transfer_leader(2)
    cluster[1].read_index(b"b")
    assert [read.context for read in reads(cluster, 1)] == [b"a"]


def test_a_leader_is_not_forgotten_while_leases_are_used():
    """The lease guarantees that no follower votes for another leader."""
    cluster = Cluster(3, check_quorum=True, read_only=ReadOnly.LEASE_BASED)
    cluster.elect(1)
    cluster[2].forget_leader()
    assert cluster[2].leader == 1


def test_lease_reads_require_check_quorum():
    with pytest.raises(AssertionError, match="check_quorum"):
        RaftConfig(1, check_quorum=False, read_only=ReadOnly.LEASE_BASED)


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": 0},
        {"election_ticks": 1},
        {"heartbeat_ticks": 0},
        {"message_bytes_max": 0},
        {"inflight_messages_max": 0},
        {"inflight_bytes_max": 10, "message_bytes_max": 11},
        {"committed_bytes_max": 0},
        {"uncommitted_bytes_max": 0},
        {"reads_pending_max": 0},
        {"entry_bytes_max": 0},
        {"entry_bytes_max": ENTRY_BYTES_MAX + 1},
        {"applied": -1},
    ],
)
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(AssertionError):
        RaftConfig(**{"member_id": 1, **wrong})
