"""Real nodes compare their states, and a node whose state was changed rebuilds its state."""

import pytest

from taskraft_service.storage.rocks import RocksStore
from tests.service.process.test_scrub_live import fill, sample
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

SETTINGS = {"TASKRAFT_COMPARE_PERIOD_MS": "1000"}
MIB = 1 << 20


def comparisons(cluster):
    return sum(sample(node, "taskraft_state_comparisons_total") or 0 for node in cluster.running())


def change_a_task(data):
    """Change the last byte of the first task record; RocksDB's checksums stay right."""
    (place,) = (each for each in (data / "state").iterdir() if each.name.isdigit())
    store = RocksStore(place, MIB, MIB)
    key, value = next(store.scan(b"t", b"u"))
    store.write([(key, value[:-1] + bytes((value[-1] ^ 1,)))])
    store.flush()
    store.close()


def await_comparison(cluster, leader):
    """Wait until the leader has begun and ended a comparison."""
    seen = sample(leader, "taskraft_state_comparisons_total")
    cluster.wait_until(
        lambda: sample(leader, "taskraft_state_comparisons_total") > seen + 1, "a comparison"
    )


@pytest.mark.shows_fault(
    "state",
    "the state differs from that of a majority, although all checksums are right",
    "rebuilds the state ([decision 15](decisions/0015-comparison-of-states.md))",
)
def test_a_node_with_another_state_rebuilds_it_and_the_others_go_on(tmp_path):
    with LocalCluster(3, tmp_path / "c", settings=SETTINGS) as cluster:
        fill(cluster.leader())
        before = comparisons(cluster)
        cluster.wait_until(lambda: comparisons(cluster) > before + 1, "a comparison")
        assert all(sample(node, "taskraft_state_differences_total") == 0 for node in cluster.nodes)
        follower = next(node for node in cluster.nodes if node is not cluster.leader())
        assert follower.stop() == 0
        change_a_task(follower.folder / "data")
        follower.start()
        cluster.wait_until(lambda: "the state is damaged" in follower.log.read_text(), "a repair")
        said = follower.log.read_text()
        assert "differs from the state of a majority of the voters" in said
        assert "in tasks of tubes whose number modulo 15 is" in said
        assert (follower.folder / "data" / "state.damaged").is_dir()
        leader = cluster.leader()
        assert sample(leader, "taskraft_state_differences_total") >= 1
        cluster.wait_ready()
        cluster.wait_until(lambda: follower.state() is not None, "the follower again")
        await_comparison(cluster, leader)  # it may have begun before the repair
        differences = sample(leader, "taskraft_state_differences_total")
        await_comparison(cluster, leader)
        assert follower.is_running
        assert sample(leader, "taskraft_state_differences_total") == differences
