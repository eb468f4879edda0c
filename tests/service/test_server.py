"""A single node over real gRPC."""

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import config_in, running


async def create(node, name="jobs", kind=tube_service_pb2.Tube.FIFOTTL):
    tube = tube_service_pb2.Tube(name=name, kind=kind)
    return await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


async def put(node, *payloads, tube="jobs", **fields):
    tasks = [task_pb2.TaskSpec(payload=payload, **fields) for payload in payloads]
    return await node.tasks.PutTasks(pb.PutTasksRequest(tube=tube, tasks=tasks))


async def take(node, tube="jobs", tasks_max=10, wait_ms=0, **fields):
    request = pb.TakeTasksRequest(
        sources=[pb.TakeSource(tube=tube)], tasks_max=tasks_max, wait_ms=wait_ms, **fields
    )
    return await node.tasks.TakeTasks(request, timeout=5)


async def test_a_task_is_put_taken_and_acknowledged(node):
    await create(node)
    answer = await put(node, b"one", b"two")
    assert list(answer.task_ids) == [1, 2]
    taken = await take(node)
    assert [task.spec.payload for task in taken.tasks] == [b"one", b"two"]
    tokens = [task.token for task in taken.tasks]
    ack = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())
    settled = await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[ack]))
    assert not settled.errors
    statistics = await node.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
    assert statistics.total.tasks.total == 0
    assert statistics.total.calls.ack == 2


async def test_the_state_survives_a_restart(tmp_path):
    config = config_in(tmp_path)
    async with running(config) as node:
        await create(node)
        await put(node, b"kept")
        before = node.queue.digest()
        assert before
    async with running(config) as node:
        taken = await take(node)
        assert [task.spec.payload for task in taken.tasks] == [b"kept"]
