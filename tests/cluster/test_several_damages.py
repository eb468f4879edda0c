"""All copies are damaged, and each entry is whole on one node: the cluster returns by itself."""

import os
import subprocess
import sys
from itertools import pairwise

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import reason_in
from tests.cluster.test_member_replacement import members_of, ready_page
from tests.cluster.test_state_repair import (
    LOCAL,
    REPAIR_MS_MAX,
    SMALL,
    break_tables,
    fill,
    tasks_of,
)
from tests.drill.volume_faults import damage_entry, log_of
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

KEPT = {
    "TASKRAFT_LOG_SEGMENT_BYTES": "65536",
    # The damaged entries are not in the state yet, so that each node needs them.
    "TASKRAFT_COLLECT_ENTRIES": "100000",
    "TASKRAFT_COLLECT_MS": "600000",
}


@pytest.fixture
def stopped(tmp_path):
    """Three killed nodes with tasks in their logs, and the ids of the tasks."""
    with LocalCluster(3, tmp_path / "c", KEPT) as cluster:
        fill(cluster)
        tasks = tasks_of(cluster.leader())
        cluster.wait_until(
            lambda: all(tasks_of(node, LOCAL) == tasks for node in cluster.nodes),
            "all nodes have all tasks",
            REPAIR_MS_MAX,
        )
        for node in cluster.nodes:
            node.kill()
        yield cluster, tasks


def start_all(cluster):
    for node in cluster.nodes:
        node.log.write_text("")
        node.start()


def await_tasks(cluster, tasks):
    """Wait until the cluster serves, and check that no task is lost."""
    cluster.wait_until(lambda: members_of(cluster), "the cluster serves", REPAIR_MS_MAX)
    assert tasks_of(cluster.leader()) == tasks


@pytest.mark.shows_fault(
    "log and vote",
    "the logs of several or all members are damaged, each entry is whole on one of them, and no"
    " leader is left",
    "[completes the logs](#several-damaged-logs) with entries of each other; the members and their"
    " votes stay",
)
def test_three_logs_that_are_damaged_in_different_places_complete_each_other(stopped):
    cluster, tasks = stopped
    last = log_of(cluster.nodes[0]).last
    for number, node in enumerate(cluster.nodes):
        damage_entry(node, last - 30 + 10 * number)
        damage_entry(node, last - 25 + 10 * number)
    gaps = [log_of(node).gaps(log_of(node).start) for node in cluster.nodes]
    assert all(one != two for one, two in pairwise(gaps))
    start_all(cluster)
    await_tasks(cluster, tasks)
    assert sorted(member.id for member in members_of(cluster)) == [1, 2, 3]
    repaired = [
        node for node in cluster.nodes if "the log is complete again" in node.log.read_text()
    ]
    assert len(repaired) >= 2, "two nodes are needed for a leader"


def test_damage_that_two_scrubbers_find_at_once_is_repaired(tmp_path):
    """Neither node is replaced, because without both of them there is no leader."""
    with LocalCluster(3, tmp_path / "c", {**KEPT, "TASKRAFT_SCRUB_PERIOD_MS": "1000"}) as cluster:
        fill(cluster)
        tasks = tasks_of(cluster.leader())
        nodes = cluster.nodes[:2]
        for node in nodes:
            node.pause()
        for number, node in enumerate(nodes):
            damage_entry(node, log_of(node).last - 30 + 10 * number)
        for node in nodes:
            node.resume()
        for node in nodes:
            cluster.wait_until(
                lambda node=node: (
                    "the log is complete again" in node.log.read_text()
                    or "becomes a new member" in node.log.read_text()
                ),
                "the damage is found and repaired",
                REPAIR_MS_MAX,
            )
        await_tasks(cluster, tasks)
        assert any("the log is complete again" in node.log.read_text() for node in nodes)


@pytest.mark.shows_fault(
    "log and vote",
    "an entry is damaged on all members that can be reached",
    "waits without voting, and names the entries in `/readyz`; `taskraft cluster recover"
    " --force-new` continues without them",
)
def test_an_entry_that_no_node_has_is_named(stopped):
    cluster, _ = stopped
    last = log_of(cluster.nodes[0]).last
    for node in cluster.nodes:
        damage_entry(node, last - 20)
    start_all(cluster)
    text = f"the log lacks entry {last - 20}, which no other member has sent"
    for node in cluster.nodes:
        cluster.wait_until(
            lambda node=node: text in ready_page(node)[1], "the entry is named", REPAIR_MS_MAX
        )
    assert all(node.is_running for node in cluster.nodes)
    assert not members_of(cluster)


@pytest.mark.shows_fault(
    "state",
    "the states of all members are damaged, so that none can send a whole one",
    "waits without voting, and keeps the damaged copy; `taskraft cluster recover --force-new`"
    " continues with the copy, and names the tasks that cannot be read",
)
def test_a_survivor_continues_with_a_damaged_state(tmp_path):
    settings = {**SMALL, "TASKRAFT_SCRUB_PERIOD_MS": "1000"}
    with LocalCluster(3, tmp_path / "c", settings) as cluster:
        fill(cluster)
        tasks = tasks_of(cluster.leader())
        for node in cluster.nodes:
            node.stop()
        for node in cluster.nodes:
            break_tables(node)
        start_all(cluster)
        for node in cluster.nodes:
            cluster.wait_until(
                lambda node=node: "cannot use the state of" in ready_page(node)[1],
                "the node has asked the others",
                REPAIR_MS_MAX,
            )
        for node in cluster.nodes:
            node.kill()
        survivor = cluster.nodes[1]
        recovered = subprocess.run(
            [sys.executable, "-m", "taskraft", "cluster", "recover", "--force-new", "--yes"],
            env={**os.environ, **survivor.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert recovered.returncode == 0, recovered.stderr
        assert "given up: state: payloads of the tasks" in recovered.stderr
        survivor.start()
        cluster.wait_until(lambda: cluster.leader() is survivor, "it leads", REPAIR_MS_MAX)
        readable = [task for task in tasks if can_be_read(survivor, task)]
        assert 0 < len(readable) < len(tasks)


def can_be_read(node, task_id):
    """Return whether a task and its payload can be read; a refusal must say that it is damaged."""
    selector = task_pb2.TaskSelector(ids=[task_id])
    with grpc.insecure_channel(node.address) as channel:
        try:
            task_service_pb2_grpc.TaskServiceStub(channel).GetTasks(
                pb.GetTasksRequest(tube="t", selector=selector)
            )
        except grpc.RpcError as error:
            return reason_in(error.trailing_metadata()) != "STATE_DAMAGED"
    return True
