"""Fill the disk of a node, and check the node before, during and after the lack of space."""

import random

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.process.main import EXIT_BROKEN
from tests.cluster.volume import NoVolumes, Volume
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

MIB = 1 << 20
SMALL = {
    "TASKRAFT_AUTO_CREATE_TUBES": "true",
    "TASKRAFT_LOG_SEGMENT_BYTES": str(MIB),
    "TASKRAFT_LOG_FLUSH_BYTES": str(2 * MIB),
    "TASKRAFT_LOG_KEPT_BYTES": str(2 * MIB),
    "TASKRAFT_LOG_KEPT_ENTRIES": "10",
    "TASKRAFT_WRITE_BUFFER_BYTES": str(MIB),
}
NOISE = random.Random(1).randbytes(MIB - 64)
"""Payload that cannot be compressed, so that the state grows by its size."""


@pytest.fixture
def volume(tmp_path):
    try:
        one = Volume(tmp_path / "volume", 16 * MIB)
    except NoVolumes as error:
        pytest.skip(str(error))
    yield one
    one.unmount()


def stub_of(channel):
    return task_service_pb2_grpc.TaskServiceStub(channel)


def put_until_refused(address, calls_max):
    """Put until a put fails; return the numbers of the acknowledged tasks and the error."""
    answered = []
    with grpc.insecure_channel(address) as channel:
        specs = [task_pb2.TaskSpec(payload=NOISE[part::4]) for part in range(4)]
        for _ in range(calls_max):
            try:
                put = pb.PutTasksRequest(tube="t", tasks=specs)
                answered += stub_of(channel).PutTasks(put, timeout=20).task_ids
            except grpc.RpcError as error:
                return answered, error
    return answered, None


def take_and_acknowledge_all(address):
    """Take and acknowledge all tasks; return their numbers."""
    found = []
    with grpc.insecure_channel(address) as channel:
        stub = stub_of(channel)
        take = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="t")], tasks_max=8, wait_ms=0)
        while tasks := stub.TakeTasks(take, timeout=20).tasks:
            ack = pb.Settlement(tokens=[task.token for task in tasks], ack=pb.Settlement.Ack())
            assert not stub.SettleTasks(pb.SettleTasksRequest(settlements=[ack]), timeout=20).errors
            found += [task.id for task in tasks]
    return found


@pytest.mark.shows_fault(
    "disk",
    "the disk is nearly full",
    "refuses puts, also in batches, new groups and schedules, and larger payloads "
    "with `DISK_LOW`; schedules wait; takes and settlements still work. Only the "
    "leader's disk counts, so give all members equal disks",
)
def test_puts_are_refused_below_the_low_space_limit_and_consumers_still_settle(tmp_path, volume):
    settings = {**SMALL, "TASKRAFT_DISK_LOW_BYTES": str(8 * MIB)}
    cluster = LocalCluster(1, tmp_path / "c", settings)
    node = volume.hold(cluster.nodes[0])
    with cluster:
        answered, error = put_until_refused(node.address, 1000)
        assert "free disk space is low" in error.details()
        assert take_and_acknowledge_all(node.address) == answered
        # The acknowledged tasks still take space: in the log, and in files until compaction.
        volume.grow(64 * MIB)
        # The node measures the free space at intervals.
        cluster.wait_until(lambda: put_until_refused(node.address, 1)[1] is None, "room for puts")


def test_a_node_with_a_full_disk_stops_and_later_has_all_acknowledged_tasks(tmp_path, volume):
    cluster = LocalCluster(1, tmp_path / "c", {**SMALL, "TASKRAFT_DISK_LOW_BYTES": "0"})
    node = volume.hold(cluster.nodes[0])
    ballast = volume.place / "ballast"
    ballast.write_bytes(b"x" * 6 * MIB)
    with cluster:
        answered, error = put_until_refused(node.address, 1000)
        assert error.code() is grpc.StatusCode.UNAVAILABLE, "the outcome of the put is unknown"
        assert node.wait() == EXIT_BROKEN
        (line,) = [each for each in node.log.read_text().splitlines() if each[:9] == "taskraft:"]
        assert "No space left on device" in line
        assert str(volume.place) in line, "the error names the file"
        ballast.unlink()
        node.start()
        cluster.wait_ready()
        found = take_and_acknowledge_all(node.address)
        # The unanswered put has taken effect for all of its tasks or for none.
        assert found[: len(answered)] == answered
        assert len(found) - len(answered) in {0, 4}


@pytest.mark.shows_fault(
    "copies",
    "no disk space for an incoming snapshot or for its state",
    "deletes what was received, refuses the snapshot and continues; the leader tries again",
)
def test_a_joining_node_without_disk_space_for_a_snapshot_runs_on_and_installs_it_later(
    tmp_path, volume
):
    """The disk has space for the received snapshot but not for the state built from it."""
    with LocalCluster(1, tmp_path / "c", SMALL) as cluster:
        leader = cluster.leader()
        with grpc.insecure_channel(leader.address) as channel:
            for _ in range(12):
                put = pb.PutTasksRequest(tube="t", tasks=[task_pb2.TaskSpec(payload=NOISE)])
                stub_of(channel).PutTasks(put, timeout=20)
        newcomer = volume.hold(cluster.joiner("newcomer"))
        newcomer.start()
        refused = "cannot use a received snapshot"
        cluster.wait_until(lambda: refused in newcomer.log.read_text(), "the snapshot is refused")
        assert "No space left on device" in newcomer.log.read_text()
        assert newcomer.is_running
        volume.grow(128 * MIB)
        goal = leader.state().state.applied_index
        cluster.wait_until(lambda: applied(newcomer) >= goal, "the newcomer has caught up")


def applied(node):
    assert node.is_running, node.tail()
    state = node.state()
    return state.state.applied_index if state else 0
