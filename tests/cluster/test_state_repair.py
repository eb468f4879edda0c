"""A node whose state is damaged gets the state of another node, and keeps its identity."""

import os
from pathlib import Path

import grpc
import pytest

from taskraft.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import reason_in
from taskraft_service.process.main import EXIT_BROKEN
from tests.cluster.damaged_tables import break_tables_in
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
LOCAL = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL)


@pytest.fixture
def settings():
    """Settings of the nodes beside ``SMALL``; a test may choose others."""
    return {}


@pytest.fixture
def cluster(tmp_path, settings):
    """Three nodes with tasks, whose logs do not reach back to the first entry."""
    with LocalCluster(3, tmp_path / "c", {**SMALL, **settings}) as one:
        fill(one)
        yield one


def fill(cluster):
    """Create a tube with tasks."""
    with grpc.insecure_channel(cluster.leader().address) as channel:
        tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
        create = tube_service_pb2.CreateTubeRequest(tube=tube)
        tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create)
        for number in range(PUTS):
            put(channel, f"r{number}")


def put(channel, request_id):
    specs = [task_pb2.TaskSpec(payload=os.urandom(2000))] * TASKS_EACH
    request = pb.PutTasksRequest(tube="t", tasks=specs, request_id=request_id)
    task_service_pb2_grpc.TaskServiceStub(channel).PutTasks(request)


def data_of(node):
    return Path(node.environment["TASKRAFT_DATA_DIR"])


def break_tables(node):
    """Damage payloads of a stopped node."""
    break_tables_in(data_of(node))


def follower_of(cluster):
    leader = cluster.leader()
    return next(node for node in cluster.nodes if node is not leader)


def tasks_of(node, consistency=None):
    """Return the ids of all tasks."""
    found, token = [], ""
    with grpc.insecure_channel(node.address) as channel:
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        while True:
            request = pb.ListTasksRequest(
                tube="t", page_size=100, page_token=token, consistency=consistency
            )
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


@pytest.mark.shows_fault(
    "state",
    "`state/current`, RocksDB's manifest or the whole state is missing or damaged, "
    "found at a start",
    "[rebuilds the state](#repair-of-the-state). The node checks the manifest "
    "itself, because with some damaged manifests RocksDB hangs or opens an earlier "
    "state without an error",
)
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


def by_a_call(node):
    """Read all tasks that the node itself has."""
    tasks_of(node, LOCAL)


def by_a_snapshot(node):
    """Save the state of the node."""
    request = cluster_service_pb2.SaveSnapshotRequest(consistency=LOCAL)
    with grpc.insecure_channel(node.address) as channel:
        for _ in cluster_service_pb2_grpc.ClusterServiceStub(channel).SaveSnapshot(request):
            pass


CALLS = (by_a_call, by_a_snapshot)


def refusal_of(call):
    """Return the gRPC code and the reason of a failed call; None if it succeeds."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name, reason_in(error.trailing_metadata())
    return None


def change_tasks(cluster):
    """Change a header of all tasks; a node reads the payloads when it applies the entry."""
    chosen = task_pb2.TaskSelector(ids=tasks_of(cluster.leader()))
    update = task_pb2.TaskUpdate(headers_set={"changed": b"yes"})
    with grpc.insecure_channel(cluster.leader().address) as channel:
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        tasks.UpdateTasks(pb.UpdateTasksRequest(tube="t", selector=chosen, update=update))


@pytest.mark.shows_fault(
    "state",
    "damaged block in a table, found by a call, a snapshot, the replay of the log, or a comparison",
    "rebuilds the state in the same process; the call is refused with "
    "[`STATE_DAMAGED`](errors.md#state_damaged)",
)
@pytest.mark.parametrize(
    ("find", "settings"),
    [
        (by_a_call, {}),
        (by_a_snapshot, {}),
        (change_tasks, {}),
        (None, {"TASKRAFT_COMPARE_PERIOD_MS": "1000"}),
    ],
    ids=["call", "save", "replay", "comparison"],
)
def test_damage_is_repaired_in_the_process_whoever_finds_it(cluster, find):
    """The test damages the first state, and then two states that a peer has sent."""
    node = follower_of(cluster)
    for repairs in (1, 2, 3):
        assert node.stop() == 0
        break_tables(node)
        if find is change_tasks:
            find(cluster)
        node.start()
        refusals = set()

        def is_repaired(refusals=refusals, repairs=repairs):
            if find in CALLS and node.state() is not None:
                refusals.add(refusal_of(lambda: find(node)))
            return node.log.read_text().count("the state is repaired") == repairs

        cluster.wait_until(is_repaired, "the repair", REPAIR_MS_MAX)
        await_whole(cluster, node)
        assert tasks_of(node) == tasks_of(cluster.leader())
        assert {code for code, _ in refusals - {None}} <= {"UNAVAILABLE"}
        assert find not in CALLS or ("UNAVAILABLE", "STATE_DAMAGED") in refusals


@pytest.mark.shows_fault(
    "state",
    "damaged block on a node without other voters",
    "refuses calls that need the block with `STATE_DAMAGED`, sends no snapshot, and "
    "serves the rest",
)
def test_a_lone_node_refuses_what_it_cannot_read_and_serves_the_rest(tmp_path):
    with LocalCluster(1, tmp_path / "c", SMALL) as cluster:
        fill(cluster)
        (node,) = cluster.nodes
        assert node.stop() == 0
        break_tables(node)
        node.start()
        cluster.wait_ready()
        for find in CALLS:
            assert refusal_of(lambda find=find: find(node)) == ("UNAVAILABLE", "STATE_DAMAGED")
        with grpc.insecure_channel(node.address) as channel:
            put(channel, "after the damage")
        assert node.is_running
        said = node.log.read_text()
    assert "a call has read damaged state; restore a backup" in said
    assert "damage found; no other member can help" in said


@pytest.mark.shows_fault(
    "copies",
    "a new member needs the state of a lone node that has a damaged block",
    "the lone node sends no state, and the new member gets no vote",
)
def test_a_newcomer_gets_no_state_and_no_vote_from_a_damaged_node(tmp_path):
    with LocalCluster(1, tmp_path / "c", SMALL) as cluster:
        fill(cluster)
        (node,) = cluster.nodes
        assert node.stop() == 0
        break_tables(node)
        node.start()
        cluster.wait_ready()
        newcomer = cluster.joiner("newcomer")
        newcomer.environment["TASKRAFT_JOIN_AS"] = "voter"
        newcomer.start()
        refusal = "damage found; no other member can help"
        cluster.wait_until(lambda: refusal in node.log.read_text(), "the refusal")
        (member,) = [each for each in node.state().members if each.name == "newcomer"]
        assert member.suffrage == cluster_service_pb2.Member.LEARNER
        assert newcomer.is_running
        assert not list(data_of(newcomer).glob("state/*/*.sst"))


@pytest.mark.shows_fault(
    "state",
    "damaged block in a table that nobody reads, found by the scrubber",
    "rebuilds the state",
)
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


@pytest.mark.shows_fault(
    "state",
    "damage is found a second time within 10 minutes of a repair in the same process",
    "exits with status 70 and the reason: the cause is probably a failing disk or failing memory",
)
@pytest.mark.parametrize("settings", [{"TASKRAFT_SCRUB_PERIOD_MS": "1000"}])
def test_damage_that_returns_after_a_repair_ends_the_process(cluster):
    node = follower_of(cluster)
    break_tables(node)
    cluster.wait_until(
        lambda: "the state is repaired" in node.log.read_text(), "the repair", REPAIR_MS_MAX
    )
    await_whole(cluster, node)
    break_tables(node)
    assert node.wait(REPAIR_MS_MAX) == EXIT_BROKEN
    assert "is damaged at byte" in node.tail()
