"""A leader whose disk hangs commits through its followers, and steps down on request."""

import pytest

from taskraft_replication.core.types import MessageKind, RaftRole
from tests.replication.core.cluster import Cluster, in_joint

K = MessageKind
HEARTBEAT_TICKS = 1


def propose_on_a_hung_disk(cluster, reached, data=b"x"):
    """Let the leader, member 1, propose; only the other members sync."""
    leader = cluster.peers[1]
    cluster[1].propose(data)
    for _ in range(3):
        cluster.network += leader.take_ready()
        cluster.drop(lambda m: m.to not in {1, *reached})
        cluster.deliver()
        cluster.flush(*reached)
        cluster.deliver(lambda m: m.to == 1)
    assert leader.append_work, "the leader's own write is still pending"


@pytest.mark.parametrize(
    ("members", "reached", "committed"),
    [(3, (2,), False), (3, (2, 3), True), (5, (2, 3), False), (5, (2, 3, 4), True)],
)
def test_a_majority_without_the_leader_commits(members, reached, committed):
    cluster = Cluster(members)
    cluster.elect(1)
    before = cluster[1].commit_index
    propose_on_a_hung_disk(cluster, reached)
    assert (cluster[1].commit_index > before) is committed


@pytest.mark.parametrize(
    ("reached", "committed"),
    [((2, 3), False), ((4, 5), False), ((2, 4), False), ((2, 3, 4, 5), True)],
)
def test_both_majorities_of_a_joint_configuration_commit_without_the_leader(reached, committed):
    cluster = in_joint()
    cluster.elect(1)
    before = cluster[1].commit_index
    propose_on_a_hung_disk(cluster, reached)
    assert (cluster[1].commit_index > before) is committed


def test_a_leader_applies_an_entry_only_after_it_has_stored_the_entry():
    """An entry applied earlier could make the durable state newer than the durable log."""
    cluster = Cluster(3)
    cluster.elect(1)
    propose_on_a_hung_disk(cluster, (2, 3), b"x")
    assert cluster[1].commit_index == cluster[1].last_index
    assert not cluster.peers[1].apply_work
    cluster.settle()
    assert cluster.applied(1) == [b"x"]


def test_a_leader_steps_down_at_the_request_of_its_driver():
    cluster = Cluster(3, pre_vote=True, check_quorum=True)
    cluster.elect(1)
    cluster[1].step_down()
    assert (cluster[1].role, cluster[1].leader, cluster[1].term) == (RaftRole.FOLLOWER, 0, 1)
    cluster.tick(1, HEARTBEAT_TICKS)
    cluster.flush(1)
    assert not cluster.network, "no heartbeat delays an election"
    cluster.tick(2, 20)
    cluster.tick(3, 20)
    cluster.settle()
    leaders = [member for member in (1, 2, 3) if cluster[member].role is RaftRole.LEADER]
    assert leaders in ([2], [3])
    assert cluster[1].term == 2


def test_a_step_down_request_has_no_effect_on_a_follower():
    cluster = Cluster(3)
    cluster.elect(1)
    before = cluster[2].status()
    cluster[2].step_down()
    assert cluster[2].status() == before
