"""Run nodes as real processes."""

import pytest

from tools.local_cluster import LocalCluster
from tools.local_node import NodeFailed


@pytest.mark.cluster
def test_a_node_that_cannot_start_is_reported_with_its_output(tmp_path):
    cluster = LocalCluster(1, tmp_path, {"TASKRAFT_TICK_MS": "seldom"})
    with pytest.raises(NodeFailed, match=r"n1 exited during the start:\n.*tick_ms"), cluster:
        pass
    assert not any(cluster.running())


@pytest.mark.cluster
def test_a_killed_node_starts_again_with_its_data(tmp_path):
    with LocalCluster(1, tmp_path) as cluster:
        (node,) = cluster.nodes
        first = node.state()
        node.kill()
        assert (node.is_running, node.state(), cluster.leader()) == (False, None, None)
        node.start()
        cluster.wait_ready()
        again = node.state()
        assert again.cluster_id == first.cluster_id
        assert again.state.term > first.state.term
        assert node.stop() == 0
