"""Kill a node at a failpoint while a client puts; acknowledged tasks must survive."""

import signal

import grpc
import pytest

from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time


def put_until_it_dies(address):
    """Put tasks one by one until the node is killed; return the acknowledged numbers."""
    answered = []
    with grpc.insecure_channel(address) as channel:
        tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFO)
        create = tube_service_pb2.CreateTubeRequest(tube=tube)
        tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create, timeout=20)
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        for number in range(20_000):
            spec = task_pb2.TaskSpec(payload=b"%d" % number)
            try:
                tasks.PutTasks(pb.PutTasksRequest(tube="t", tasks=[spec]), timeout=20)
            except grpc.RpcError:
                return answered
            answered.append(number)
    raise AssertionError("the failpoint was never crossed")


def found(address):
    """Return the numbers of all tasks."""
    with grpc.insecure_channel(address) as channel:
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        take = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="t")], tasks_max=1000, wait_ms=0)
        numbers = []
        while taken := tasks.TakeTasks(take, timeout=20).tasks:
            numbers += [int(task.spec.payload) for task in taken]
        return numbers


@pytest.mark.parametrize(
    "rules",
    [
        "append.after_write=kill@40",
        "append.after_sync=kill@40",
        "state.after_write=kill@5",
    ],
)
def test_acknowledged_tasks_survive_a_kill_of_the_only_node(tmp_path, rules):
    cluster = LocalCluster(1, tmp_path / "c", settings={"TASKRAFT_FAILPOINTS": rules})
    (node,) = cluster.nodes
    try:
        node.module = "tests.failpoints"
        node.start()
        cluster.wait_ready()
        answered = put_until_it_dies(node.address)
        assert node._process.wait(20) == -signal.SIGKILL
        node.module = "taskraft_service.process"
        node.start()
        cluster.wait_ready()
        there = found(node.address)
        # One more task is allowed: the kill can hit between the commit and the response.
        assert there in (answered, [*answered, len(answered)])
    finally:
        cluster.close()
