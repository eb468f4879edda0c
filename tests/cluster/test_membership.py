"""Add, promote and remove real processes on the command line, and wipe a data directory."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(tmp_path):
    with LocalCluster(3, tmp_path / "c", {"TASKRAFT_AUTO_CREATE_TUBES": "true"}) as one:
        yield one


def taskraft(cluster, *words):
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "taskraft", *words, "--timeout", "30s"],
        env={**os.environ, "TASKRAFT_TARGET": cluster.target},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_words(node):
    """Return the last line that a node printed."""
    lines = [line for line in node.log.read_text().splitlines() if line.startswith("taskraft: ")]
    return lines[-1] if lines else ""


def test_a_node_is_added_promoted_leads_and_is_removed(cluster):
    taskraft(cluster, "put", "work", "before")
    new = cluster.joiner("n4")
    added = taskraft(cluster, "cluster", "add", new.name, new.peer_address, new.address)
    assert added.startswith("added n4 as member 4")
    assert "learner, not joined" in taskraft(cluster, "cluster", "status")
    new.start()
    # The command waits until the node has caught up.
    taskraft(cluster, "cluster", "promote", new.name)
    cluster.wait_ready()
    assert taskraft(cluster, "cluster", "transfer", new.name) == "leader n4\n"
    leader = cluster.wait_ready()
    assert leader is new
    assert "4 voters" in taskraft(cluster, "cluster", "status")
    taskraft(cluster, "put", "work", "after")
    # The leader transfers leadership. The new leader removes the former leader, whose process ends.
    assert taskraft(cluster, "cluster", "remove", new.name, "--yes") == "removed n4\n"
    assert new.wait() == 1
    assert "member 4 was removed" in last_words(new)
    # The removed node refuses to start again with its data.
    new.start()
    assert new.wait() == 1
    assert "it must join again, with an empty data directory" in last_words(new)
    cluster.wait_ready()
    assert "3 voters" in taskraft(cluster, "cluster", "status")
    assert json.loads(taskraft(cluster, "stats", "work", "-o", "jsonl"))["tasks"]["ready"] == 2


def test_a_wiped_node_can_join_only_as_a_new_member(cluster):
    taskraft(cluster, "put", "work", "kept")
    leader = cluster.leader()
    wiped = next(node for node in cluster.nodes if node is not leader)
    wiped.kill()
    shutil.rmtree(wiped.folder / "data")
    wiped.start()
    assert wiped.wait() == 1
    assert "the directory was wiped or replaced" in last_words(wiped)
    # The node cannot join while its name belongs to the old member.
    shutil.rmtree(wiped.folder / "data")
    wiped.environment = {**wiped.environment, "TASKRAFT_JOIN": leader.address}
    wiped.start()
    assert wiped.wait() == 1
    assert "has another data directory" in last_words(wiped)
    taskraft(cluster, "cluster", "remove", wiped.name, "--yes")
    shutil.rmtree(wiped.folder / "data")
    wiped.start()
    cluster.wait_ready()
    taskraft(cluster, "cluster", "promote", wiped.name)
    status = taskraft(cluster, "cluster", "status")
    assert "3 voters" in status
    assert [line.split()[0] for line in status.splitlines() if wiped.name in line.split()] == ["4"]
