"""Upgrade and return three real nodes, one after the other, while a client puts tasks.

``TASKRAFT_TEST_UPGRADE_PUTS`` is the rate of puts (20 a second), ``make upgrade-drill`` uses 200.
"""

import os
import time
from pathlib import Path

import pytest

from taskraft import Client
from taskraft.errors import VersionTooLow
from tests.file_digests import file_digests
from tests.service.process.test_scrub_live import sample
from tests.upgrade.last_release import release_wheels, released_build
from tests.upgrade.load import Load
from tests.upgrade.next_build import next_build, this_build
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

PUTS_PER_SECOND = int(os.environ.get("TASKRAFT_TEST_UPGRADE_PUTS", "20"))


def replace_all(cluster, build):
    """Stop each node in turn, and start the other build on the same data."""
    for node in cluster.nodes:
        node.stop()
        node.environment = {**node.environment, **build}
        node.start()
        cluster.wait_ready()


def wait_for(cluster, told):
    """Wait until the state of the leader satisfies ``told``; return the state."""
    until = time.monotonic() + 60
    with Client(cluster.target) as client:
        while time.monotonic() < until:
            state = client.cluster_state()
            if state.leader == state.node and told(state):
                return state
    raise AssertionError(f"the cluster stays at {state}")


def await_comparison(cluster):
    """Wait until the members have compared their states once more, and found no difference."""

    def compared():
        return sum(sample(node, "taskraft_state_comparisons_total") or 0 for node in cluster.nodes)

    before = compared()
    # The first result can be that of a comparison that began earlier.
    cluster.wait_until(lambda: compared() > before + 1, "a comparison")
    assert all(sample(node, "taskraft_state_differences_total") == 0 for node in cluster.nodes)
    assert not any("the state is damaged" in node.log.read_text() for node in cluster.nodes)


def is_planned(state):
    return state.planned_cluster_version == 2


def test_nodes_are_upgraded_and_return_under_load_without_a_failed_call(tmp_path):
    here, later = this_build(), next_build(tmp_path / "next")
    settings = {"TASKRAFT_COMPARE_PERIOD_MS": "1000"}
    with LocalCluster(3, tmp_path / "cluster", settings) as cluster:
        with Client(cluster.target) as client:
            client.create_tube("load")
            client.create_tube("idle")
        with Load(cluster.target, PUTS_PER_SECOND) as load:
            first = cluster.nodes[0]
            first.stop()
            first.environment = {**first.environment, **later}
            first.start()
            cluster.wait_ready()
            state = wait_for(cluster, lambda state: len(state.upgrade_blockers) == 2)
            assert set(state.upgrade_blockers) == {
                "n2 speaks cluster version 1",
                "n3 speaks cluster version 1",
            }
            await_comparison(cluster)
            with Client(cluster.target) as client, pytest.raises(VersionTooLow, match="n2 speaks"):
                client.upgrade_cluster()
            replace_all(cluster, later)
            state = wait_for(cluster, is_planned)
            assert state.cluster_version == 1
            replace_all(cluster, here)
            wait_for(cluster, lambda state: not state.planned_cluster_version)
            replace_all(cluster, later)
            wait_for(cluster, is_planned)
            with Client(cluster.target) as client:
                with pytest.raises(VersionTooLow, match="needs cluster version 2"):
                    client.tube("idle").release_all()
                assert client.upgrade_cluster() == 2
                client.tube("idle").release_all()
            await_comparison(cluster)
            refuses_the_older_build(cluster, here, later)
        load.drain()
        assert load.errors == []
        assert load.put, "the test put nothing"
        assert load.taken == set(load.put)
        print(f"{len(load.put)} puts, {len(load.put) / load.seconds:.0f} a second; none failed")


def test_the_wheels_of_the_last_release_are_upgraded_to_this_tree_and_return_under_load(tmp_path):
    (tmp_path / "built").mkdir()
    wheels = release_wheels(tmp_path / "built")
    released, here = released_build(wheels, tmp_path / "release"), this_build()
    settings = {"TASKRAFT_COMPARE_PERIOD_MS": "1000", **released}
    with LocalCluster(3, tmp_path / "cluster", settings) as cluster:
        with Client(cluster.target) as client:
            client.create_tube("load")
        with Load(cluster.target, PUTS_PER_SECOND) as load:
            for build in (here, released, here):
                replace_all(cluster, build)
                await_comparison(cluster)
        load.drain()
        assert load.errors == []
        assert load.put, "the test put nothing"
        assert load.taken == set(load.put)


def refuses_the_older_build(cluster, here, later):
    """A node of the older build stops with one line, and changes no file of its data."""
    node = cluster.nodes[2]
    cluster.wait_until(lambda: node.state().cluster_version == 2, "n3 applies the raise")
    node.stop()
    check_older_build_refused(node, here)
    node.close()
    node.environment = {**node.environment, **later}
    node.start()
    cluster.wait_ready()


def check_older_build_refused(node, here):
    """Start the older build on the data of a stopped node, which has applied the raise."""
    before = len(node.log.read_text())
    files = file_digests(Path(node.environment["TASKRAFT_DATA_DIR"]))
    node.environment = {**node.environment, **here}
    node.start()
    assert node.wait() == 1
    assert file_digests(Path(node.environment["TASKRAFT_DATA_DIR"])) == files
    said = [line for line in node.log.read_text()[before:].splitlines() if "taskraft:" in line]
    assert len(said) == 1
    assert said[0].endswith(
        "the cluster is at cluster version 2, and this release speaks cluster version 1; "
        "run a release that speaks cluster version 2"
    )
