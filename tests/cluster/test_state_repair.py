"""A node whose state is damaged gets the state of another node, and keeps its identity."""

import os
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

SMALL = {
    "TASKRAFT_LOG_SEGMENT_BYTES": "65536",
    "TASKRAFT_LOG_FLUSH_BYTES": "100000",
    "TASKRAFT_LOG_KEPT_ENTRIES": "10",
    "TASKRAFT_COLLECT_ENTRIES": "5",
}
PUTS, TASKS_EACH = 60, 5
REPAIR_MS_MAX = 60_000


@pytest.fixture
def cluster(tmp_path):
    """Three nodes with tasks, whose logs do not reach back to the first entry."""
    with LocalCluster(3, tmp_path / "c", SMALL) as one:
        leader = one.leader()
        with grpc.insecure_channel(leader.address) as channel:
            tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
            create = tube_service_pb2.CreateTubeRequest(tube=tube)
            tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create)
            tasks = task_service_pb2_grpc.TaskServiceStub(channel)
            for number in range(PUTS):
                specs = [task_pb2.TaskSpec(payload=os.urandom(2000))] * TASKS_EACH
                tasks.PutTasks(pb.PutTasksRequest(tube="t", tasks=specs, request_id=f"r{number}"))
        yield one


def data_of(node):
    return Path(node.environment["TASKRAFT_DATA_DIR"])


def break_tables(node):
    """Damage most blocks of each table in place, as a bad disk does."""
    tables = [*data_of(node).glob("state/*/*.sst")]
    assert tables
    for table in tables:
        content = bytearray(table.read_bytes())
        for at in range(0, len(content) * 3 // 4, 512):
            content[at] ^= 0x10
        table.write_bytes(content)


def follower_of(cluster):
    leader = cluster.leader()
    return next(node for node in cluster.nodes if node is not leader)


def tasks_of(node):
    """Return the ids of all tasks that the node itself has."""
    found, token = [], ""
    with grpc.insecure_channel(node.address) as channel:
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        while True:
            request = pb.ListTasksRequest(tube="t", page_size=100, page_token=token)
            answer = tasks.ListTasks(request, timeout=20)
            found += [task.id for task in answer.tasks]
            if not (token := answer.next_page_token):
                return found


def await_whole(cluster, node):
    """Wait until the node has applied what the leader has applied."""

    def is_whole():
        assert node.is_running, node.tail()
        leader = cluster.leader()
        mine, theirs = node.state(), leader.state() if leader else None
        if not mine or not theirs or mine.state.phase != mine.state.WAITING:
            return False
        return mine.state.applied_index >= theirs.state.applied_index

    cluster.wait_until(is_whole, "the node is whole", REPAIR_MS_MAX)


def identity_of(node):
    return (data_of(node) / "raft-0" / "identity").read_text()


@pytest.mark.parametrize("harm", ["manifest", "pointer", "whole"])
def test_damage_that_is_found_at_the_start_is_repaired_by_a_peer(cluster, harm):
    node = follower_of(cluster)
    before, tasks = identity_of(node), tasks_of(node)
    assert node.stop() == 0
    state = data_of(node) / "state"
    match harm:
        case "manifest":
            next(state.glob("*/MANIFEST-*")).write_bytes(b"nonsense")
        case "pointer":
            (state / "current").unlink()
        case "whole":
            state.rename(state.with_name("lost"))
    node.start()
    await_whole(cluster, node)
    assert identity_of(node) == before
    assert tasks_of(node) == tasks
    assert "the state is repaired" in node.log.read_text()
    assert state.with_name("state.damaged").exists() is (harm != "whole")
    assert b'"index": 1,' not in (data_of(node) / "raft-0" / "log_start").read_bytes()


def test_damage_that_a_read_finds_is_repaired_without_an_exit(cluster):
    node = follower_of(cluster)
    tasks = tasks_of(node)
    assert node.stop() == 0
    break_tables(node)
    node.start()
    cluster.wait_until(lambda: _is_repaired_by_reads(node), "the repair", REPAIR_MS_MAX)
    await_whole(cluster, node)
    assert tasks_of(node) == tasks


def test_damage_that_the_scrubber_finds_is_repaired_without_a_read(cluster):
    node = follower_of(cluster)
    tasks = tasks_of(node)
    assert node.stop() == 0
    node.environment["TASKRAFT_SCRUB_PERIOD_MS"] = "1000"
    node.start()
    await_whole(cluster, node)
    for table in data_of(node).glob("state/*/*.sst"):
        flip_a_bit(table)
    cluster.wait_until(
        lambda: "the state is repaired" in node.log.read_text(), "the repair", REPAIR_MS_MAX
    )
    await_whole(cluster, node)
    assert tasks_of(node) == tasks


def flip_a_bit(path):
    with path.open("r+b") as file:
        file.seek(100)
        (byte,) = file.read(1)
        file.seek(100)
        file.write(bytes((byte ^ 8,)))


def _is_repaired_by_reads(node):
    with suppress(grpc.RpcError):
        tasks_of(node)
    return "the state is repaired" in node.log.read_text()
