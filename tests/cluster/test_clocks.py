"""Wrong wall clocks of real nodes end no lease and delete no task."""

from __future__ import annotations

import pytest

from taskraft import Client
from taskraft.errors import WrongState
from tests.cluster.node_clocks import HOUR_MS, NodeClocks
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

AHEAD_OR_BEHIND = [24 * HOUR_MS, pytest.param(-24 * HOUR_MS, marks=pytest.mark.nightly)]
TASKS = 10
TAKEN = 2


@pytest.fixture
def nodes(tmp_path):
    with LocalCluster(3, tmp_path, {"TASKRAFT_AUTO_CREATE_TUBES": "true"}) as cluster:
        yield cluster


def restart(cluster, *clocks):
    """Restart nodes, so that they start with the new wall clocks."""
    for each in clocks:
        each.node.stop()
    for each in clocks:
        each.node.start()
    cluster.wait_ready()


@pytest.mark.parametrize("ahead_ms", AHEAD_OR_BEHIND)
def test_leases_outlive_a_wall_clock_that_is_wrong_and_then_right_again(nodes, ahead_ms):
    with Client(nodes.target) as client:
        tube = client.tube("work")
        tube.put_many([str(n) for n in range(TASKS)], ttl="1h", ttr="10m")
        taken = tube.take_many(TAKEN, wait=0)
        follower = NodeClocks(next(node for node in nodes.nodes if node is not nodes.leader()))
        follower.set_wall(ahead_ms)
        restart(nodes, follower)
        with pytest.raises(WrongState, match="wall clock"):
            client.transfer_leadership(follower.node.name)
        client.transfer_leadership()
        assert nodes.leader() is not follower.node
        follower.set_wall(0)
        restart(nodes, follower)
        client.transfer_leadership(follower.node.name)
        tasks = tube.stats().tasks
        assert (tasks.total, tasks.taken) == (TASKS, TAKEN)
        client.settle([task.token for task in taken])


@pytest.mark.parametrize("ahead_ms", AHEAD_OR_BEHIND)
def test_one_wrong_wall_clock_is_outvoted_after_all_nodes_were_down(nodes, ahead_ms):
    with Client(nodes.target) as client:
        tube = client.tube("work")
        tube.put_many([str(n) for n in range(TASKS)], ttl="1h", ttr="10m")
        taken = tube.take_many(TAKEN, wait=0)
        clocks = [NodeClocks(node) for node in nodes.nodes]
        clocks[0].set_wall(ahead_ms)
        restart(nodes, *clocks)
        tasks = tube.stats().tasks
        assert (tasks.total, tasks.taken) == (TASKS, TAKEN)
        client.settle([task.token for task in taken])


def test_time_in_which_all_nodes_were_down_counts(nodes):
    with Client(nodes.target) as client:
        tube = client.tube("work")
        tube.put_many([str(n) for n in range(TASKS)], ttl="1h")
        clocks = [NodeClocks(node) for node in nodes.nodes]
        for each in clocks:
            each.let_pass(2 * HOUR_MS)
        restart(nodes, *clocks)
        nodes.wait_until(lambda: tube.stats().tasks.total == 0, "the tasks expire")
        assert tube.stats().calls.ttl_ready == TASKS


def test_a_leader_whose_wall_clock_jumps_transfers_leadership_and_loses_nothing(nodes):
    clocks = [NodeClocks(node) for node in nodes.nodes]
    restart(nodes, *clocks)
    with Client(nodes.target) as client:
        tube = client.tube("work")
        tube.put_many([str(n) for n in range(TASKS)], ttl="1h", ttr="10m")
        taken = tube.take_many(TAKEN, wait=0)
        (leader,) = (each for each in clocks if each.node is nodes.leader())
        leader.set_wall(24 * HOUR_MS)
        nodes.wait_until(
            lambda: nodes.leader() not in (None, leader.node), "a node with a right clock leads"
        )
        tasks = tube.stats().tasks
        assert (tasks.total, tasks.taken) == (TASKS, TAKEN)
        client.settle([task.token for task in taken])
        assert "set the clock" in leader.node.log.read_text()
