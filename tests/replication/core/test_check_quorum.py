"""The leader sends heartbeats, and steps down without an active quorum."""

import pytest

from taskraft_replication.core.types import Message, MessageKind, RaftRole
from tests.replication.core.cluster import Cluster, in_joint, to

K = MessageKind


def test_member_cut_off_comes_back_without_an_election():
    """Cloudflare's outage of 2020: without pre-vote and check-quorum it ends every leadership."""
    cluster = Cluster(3, pre_vote=True, check_quorum=True)
    cluster.elect(1)
    cluster.tick(3, 200)
    cluster.flush(3)
    cluster.drop()
    cluster.tick(1)
    cluster.settle()
    assert (cluster[1].role, cluster[1].term) == (RaftRole.LEADER, 1)
    assert cluster[3].leader == 1


def test_stale_leader_learns_of_a_higher_term_from_who_is_stuck_in_it():
    """A member at a higher term that may not disturb anybody must still get back in."""
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    cluster[3].campaign()  # without pre-vote its term grows
    cluster.settle(among=[3])
    assert cluster[3].term == 2
    cluster.tick(1)
    cluster.settle()
    assert cluster[1].term == 2
    cluster.elect(1)
    assert cluster[3].leader == 1


def test_leader_without_a_quorum_steps_down():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    cluster.tick(1, 10)  # the others were heard of in this interval
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1, 10)
    assert cluster[1].role is RaftRole.FOLLOWER
    assert cluster[1].leader == 0


@pytest.mark.parametrize("settings", [{"check_quorum": True}, {"pre_vote": True}])
@pytest.mark.parametrize("kind", [K.APPEND, K.HEARTBEAT])
def test_message_of_an_earlier_term_is_answered_where_no_candidate_disturbs(settings, kind):
    cluster = Cluster(3, **settings)
    cluster[3].step(Message(K.HEARTBEAT, 3, 2, 5))
    cluster.flush(3)
    cluster.drop()
    cluster[3].step(Message(kind, 3, 1, 4))
    cluster.flush(3)
    assert [(m.kind, m.to, m.term) for m in cluster.network] == [(K.APPEND_REPLY, 1, 5)]


@pytest.mark.parametrize(("answering", "leads"), [((2, 3), False), ((4, 5), False), ((2, 4), True)])
def test_leader_in_a_joint_configuration_needs_to_hear_of_both_majorities(answering, leads):
    cluster = in_joint(check_quorum=True)
    cluster.elect(1)
    cluster.tick(1, 10)
    for member in answering:
        cluster[1].step(Message(K.HEARTBEAT_REPLY, 1, member, 1))
    cluster.tick(1, 10)
    assert (cluster[1].role is RaftRole.LEADER) is leads


def test_leader_heard_of_by_one_of_two_others_stays():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    for _ in range(50):
        cluster.tick(1)
        cluster.flush(1)
        cluster.drop(to(3))
        cluster.settle(among=[1, 2])
    assert cluster[1].role is RaftRole.LEADER


def test_leader_whose_own_disk_is_slow_counts_itself_as_active():
    cluster = Cluster(3, check_quorum=True)
    cluster[1].campaign()
    cluster.flush(1)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.LEADER
    for _ in range(3):
        cluster[1].step(Message(K.HEARTBEAT_REPLY, 1, 2, 1))
        cluster.tick(1, 10)
    assert cluster[1].role is RaftRole.LEADER


def test_new_leader_has_a_whole_timeout_before_its_first_check_of_the_quorum():
    cluster = Cluster(3, check_quorum=True)
    cluster[1].campaign()
    cluster.flush(1)
    cluster.tick(1, 9)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1, 9)
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1)
    assert cluster[1].role is RaftRole.FOLLOWER, "nobody has answered"


def test_heartbeats_leave_as_often_as_they_are_asked_for():
    cluster = Cluster(3, heartbeat_ticks=3)
    cluster.elect(1)
    sent = []
    for _ in range(9):
        cluster.tick(1)
        cluster.flush(1)
        sent.append(len([m for m in cluster.drop() if m.kind is K.HEARTBEAT]))
    assert sent == [0, 0, 2] * 3
    cluster.tick(1, 2)
    cluster.elect(2)
    cluster.elect(1)
    cluster.tick(1, 2)
    cluster.flush(1)
    assert not cluster.network, "a new leader has just told everybody"


def test_check_of_the_quorum_tells_who_was_heard_of_before_it():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    cluster.tick(1, 9)
    cluster.settle(among=[1, 2])
    cluster.tick(1)
    cluster[1].step(Message(K.HEARTBEAT_REPLY, 1, 2, 1))
    cluster.tick(1, 10)
    progress = cluster[1].status().progress
    assert [(progress[each].was_active, progress[each].recent_active) for each in (2, 3)] == [
        (True, False),
        (False, False),
    ]
