"""The leader sends heartbeats, and steps down without an active quorum."""

import pytest

from taskraft_replication.core.types import Message, MessageKind, RaftRole
from tests.replication.core.cluster import Cluster, in_joint, to

K = MessageKind


def test_a_member_that_was_cut_off_returns_without_an_election():
    """Cloudflare's outage of 2020: the returning member would end every leadership.

    Pre-vote and check-quorum together prevent the elections.
    """
    cluster = Cluster(3, pre_vote=True, check_quorum=True)
    cluster.elect(1)
    cluster.tick(3, 200)
    cluster.flush(3)
    cluster.drop()
    cluster.tick(1)
    cluster.settle()
    assert (cluster[1].role, cluster[1].term) == (RaftRole.LEADER, 1)
    assert cluster[3].leader == 1


def test_a_stale_leader_learns_the_higher_term_of_a_member_that_cannot_return():
    """A member with a higher term, which pre-vote keeps from campaigning, must still rejoin."""
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    cluster[3].campaign()  # Without pre-vote the term of member 3 grows.
    cluster.settle(among=[3])
    assert cluster[3].term == 2
    cluster.tick(1)
    cluster.settle()
    assert cluster[1].term == 2
    cluster.elect(1)
    assert cluster[3].leader == 1


def test_a_leader_without_an_active_quorum_steps_down():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    cluster.tick(1, 10)  # Both followers were active in this interval.
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1, 10)
    assert cluster[1].role is RaftRole.FOLLOWER
    assert cluster[1].leader == 0


@pytest.mark.parametrize("settings", [{"check_quorum": True}, {"pre_vote": True}])
@pytest.mark.parametrize("kind", [K.APPEND, K.HEARTBEAT])
def test_a_message_of_an_earlier_term_is_answered_if_candidates_cannot_disrupt(settings, kind):
    cluster = Cluster(3, **settings)
    cluster[3].step(Message(K.HEARTBEAT, 3, 2, 5))
    cluster.flush(3)
    cluster.drop()
    cluster[3].step(Message(kind, 3, 1, 4))
    cluster.flush(3)
    assert [(m.kind, m.to, m.term) for m in cluster.network] == [(K.APPEND_REPLY, 1, 5)]


@pytest.mark.parametrize(("answering", "leads"), [((2, 3), False), ((4, 5), False), ((2, 4), True)])
def test_a_leader_in_a_joint_configuration_needs_both_majorities_active(answering, leads):
    cluster = in_joint(check_quorum=True)
    cluster.elect(1)
    cluster.tick(1, 10)
    for member in answering:
        cluster[1].step(Message(K.HEARTBEAT_REPLY, 1, member, 1))
    cluster.tick(1, 10)
    assert (cluster[1].role is RaftRole.LEADER) is leads


def test_a_leader_with_one_of_two_others_active_stays():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    for _ in range(50):
        cluster.tick(1)
        cluster.flush(1)
        cluster.drop(to(3))
        cluster.settle(among=[1, 2])
    assert cluster[1].role is RaftRole.LEADER


def test_a_leader_with_a_slow_disk_counts_itself_as_active():
    cluster = Cluster(3, check_quorum=True)
    cluster[1].campaign()
    cluster.flush(1)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.LEADER
    for _ in range(3):
        cluster[1].step(Message(K.HEARTBEAT_REPLY, 1, 2, 1))
        cluster.tick(1, 10)
    assert cluster[1].role is RaftRole.LEADER


def test_a_new_leader_checks_its_quorum_after_a_whole_timeout():
    cluster = Cluster(3, check_quorum=True)
    cluster[1].campaign()
    cluster.flush(1)
    cluster.tick(1, 9)
    cluster[1].step(Message(K.VOTE_REPLY, 1, 2, 1))
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1, 9)
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1)
    assert cluster[1].role is RaftRole.FOLLOWER, "no member has answered"


def test_heartbeats_are_sent_at_the_configured_interval():
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
    assert not cluster.network, "a new leader has just sent a message to every member"


def test_the_quorum_check_reports_the_members_active_before_it():
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


def test_a_member_that_may_not_campaign_votes_once_its_leader_is_silent():
    """Its disk was hung, for example, so it does not campaign itself for a while."""
    cluster = Cluster(3, check_quorum=True, pre_vote=True)
    cluster.elect(1)
    cluster.tick(3, 20)
    request = cluster.drop()
    for _ in range(18):
        cluster[2].tick(may_campaign=False)
    assert cluster[2].leader == 1
    cluster[2].tick(may_campaign=False)
    assert (cluster[2].leader, cluster[2].role) == (0, RaftRole.FOLLOWER)
    cluster.network = request
    cluster.settle(among=[2, 3])
    assert cluster[3].role is RaftRole.LEADER


def test_a_tick_on_which_a_member_may_not_campaign_leaves_its_candidacy_alone():
    cluster = Cluster(3, check_quorum=True)
    cluster[1].campaign()
    cluster.flush(1)
    for _ in range(50):
        cluster[1].tick(may_campaign=False)
    assert (cluster[1].role, cluster[1].term) == (RaftRole.CANDIDATE, 1)
    cluster.tick(1, 18)
    assert cluster[1].term == 1, "the votes have a whole election timeout to arrive"


def test_a_learner_does_not_name_a_leader_that_is_silent():
    """The learner keeps the leader, since it never campaigns, but must not say that it works."""
    cluster = Cluster(3, learners=[3], check_quorum=True)
    cluster.elect(1)
    assert [cluster[number].live_leader for number in (1, 2, 3)] == [1, 1, 1]
    cluster.tick(3, 9)
    assert cluster[3].live_leader == 1
    cluster.tick(3, 100)
    assert (cluster[3].leader, cluster[3].live_leader) == (1, 0)
