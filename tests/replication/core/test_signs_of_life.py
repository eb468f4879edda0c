"""Received parts of a message prevent an election until the whole message has arrived."""

import pytest

from taskraft_replication.core.types import Message, MessageKind, RaftRole
from tests.replication.core.cluster import Cluster, in_joint, of_kind

K = MessageKind
ELECTION_TICKS = 10


def led_by_one(**settings):
    """Return a group of three that member 1 leads in term 1."""
    cluster = Cluster(3, check_quorum=True, pre_vote=True, **settings)
    cluster.elect(1)
    return cluster


def test_a_follower_that_receives_bytes_of_its_leader_does_not_campaign():
    cluster = led_by_one()
    for _ in range(20):
        cluster.tick(2, ELECTION_TICKS - 1)
        assert cluster[2].leader_alive(1, 1)
    assert (cluster[2].role, cluster[2].leader) == (RaftRole.FOLLOWER, 1)
    assert not cluster.network
    cluster.tick(2, 2 * ELECTION_TICKS)
    assert cluster[2].role is RaftRole.PRE_CANDIDATE, "without the bytes the follower campaigns"


@pytest.mark.parametrize(
    ("sender", "term"),
    [(3, 1), (1, 0), (1, 2), (2, 1)],
    ids=["another member", "an earlier term", "a later term", "itself"],
)
def test_only_bytes_of_the_known_leader_of_the_term_count(sender, term):
    cluster = led_by_one()
    cluster.tick(2, ELECTION_TICKS - 1)
    assert not cluster[2].leader_alive(sender, term)
    cluster.tick(2, ELECTION_TICKS)
    assert cluster[2].role is RaftRole.PRE_CANDIDATE


def test_bytes_do_not_announce_a_leader():
    """Candidates, leaders, and members without a leader change their role only after a message."""
    cluster = led_by_one()
    cluster[3].forget_leader()
    assert not cluster[3].leader_alive(1, 1)
    assert cluster[3].leader == 0
    assert not cluster[1].leader_alive(1, 1)
    cluster[2].campaign()
    assert not cluster[2].leader_alive(1, 1)
    assert cluster[2].role is RaftRole.PRE_CANDIDATE


def test_a_follower_that_receives_bytes_refuses_votes_to_others():
    cluster = led_by_one()
    cluster.tick(2, ELECTION_TICKS - 1)
    assert cluster[2].leader_alive(1, 1)
    cluster.tick(2, ELECTION_TICKS - 1)
    cluster.tick(3, 2 * ELECTION_TICKS)
    cluster.settle(among=[2, 3])
    assert (cluster[2].term, cluster[3].role) == (1, RaftRole.PRE_CANDIDATE)


def test_a_leader_whose_bytes_arrive_does_not_step_down():
    cluster = led_by_one()
    for _ in range(20):
        cluster[1].follower_alive(2, 1)
        cluster.tick(1, ELECTION_TICKS)
        cluster.drop()
    assert cluster[1].role is RaftRole.LEADER
    cluster.tick(1, 2 * ELECTION_TICKS)
    assert cluster[1].role is RaftRole.FOLLOWER, "without the answer the leader steps down"


@pytest.mark.parametrize(("member", "term"), [(2, 0), (2, 2), (9, 1)])
def test_answers_of_a_follower_count_in_its_term_only(member, term):
    cluster = led_by_one()
    cluster.tick(1, ELECTION_TICKS)
    cluster[1].follower_alive(member, term)
    cluster.tick(1, ELECTION_TICKS)
    assert cluster[1].role is RaftRole.FOLLOWER


def test_a_member_that_does_not_lead_ignores_followers():
    cluster = led_by_one()
    cluster[2].follower_alive(3, 1)
    assert not cluster[2].has_ready()


def test_answers_to_bytes_do_not_repeat_a_probe():
    """The append is still arriving; a heartbeat reply would make the leader repeat the append."""
    cluster = led_by_one()
    cluster[1].report_unreachable(2)
    cluster[1].propose(b"x")
    cluster.flush(1)
    cluster.drop()
    cluster[1].follower_alive(2, 1)
    cluster.flush(1)
    assert not [each for each in cluster.network if each.to == 2]


@pytest.mark.parametrize("counts", [True, False])
def test_the_votes_for_a_new_leader_show_activity_until_the_first_check(counts):
    """With a delay of 200 ms each way, no answer arrives within an election timeout."""
    cluster = Cluster(3, check_quorum=True, votes_show_activity=counts)
    cluster[1].campaign()
    while cluster[1].role is not RaftRole.LEADER:
        cluster.flush()
        cluster.deliver(of_kind(K.VOTE, K.VOTE_REPLY))
    cluster.tick(1, ELECTION_TICKS)
    assert (cluster[1].role is RaftRole.LEADER) is counts
    cluster.tick(1, ELECTION_TICKS)
    assert cluster[1].role is RaftRole.FOLLOWER


def test_a_refused_vote_shows_no_activity():
    cluster = in_joint(check_quorum=True, votes_show_activity=True)
    cluster[1].campaign()
    cluster.flush(1)
    voters = sorted({each.to for each in cluster.drop()})
    core = cluster[1]
    for voter in voters:
        core.step(Message(K.VOTE_REPLY, 1, voter, core.term))
        cluster.flush(1)
    assert core.role is RaftRole.LEADER
    active = {
        member
        for member, progress in core._member.tracker.progress.items()
        if progress.recent_active
    }
    assert 1 in active
    assert active - {1} < set(voters), "a vote that came after the election is not counted"
