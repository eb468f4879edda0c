"""A leader's status shows which members are active."""

from taskraft_replication.core.status import successor_of
from taskraft_replication.node.status import peers_of
from tests.replication.core.cluster import Cluster

TICKS = 10
"""Ticks of an election timeout, after which the leader checks its quorum."""


def test_members_that_answer_are_active_even_right_after_a_quorum_check():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    for _ in range(3 * TICKS):
        cluster[1].tick()
        # The replies to the next heartbeat have not arrived yet.
        status = cluster[1].status()
        assert all(peer.is_active for peer in peers_of(status).values())
        assert successor_of(status) in (2, 3)
        cluster.settle()


def test_a_stopped_member_becomes_inactive():
    cluster = Cluster(3, check_quorum=True)
    cluster.elect(1)
    for _ in range(3 * TICKS):
        cluster[1].tick()
        cluster.settle(among=[1, 2])
    status = cluster[1].status()
    assert not peers_of(status)[3].is_active
    assert successor_of(status) == 2


def test_a_leader_transfers_to_the_longest_log_and_reports_lagging_members():
    cluster = Cluster(4, learners=[4])
    cluster.elect(1)
    cluster[1].propose(b"x")
    cluster.settle(among=[1, 2, 4])
    status = cluster[1].status()
    peers = peers_of(status)
    assert status.last == 2
    assert [peers[member].lag_entries for member in (1, 2, 3, 4)] == [0, 0, 1, 0]
    assert [peers[member].is_learner for member in (1, 2, 3, 4)] == [False, False, False, True]
    assert successor_of(status) == 2
