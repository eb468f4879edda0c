"""A node in memory: real handlers and errors, deadlines, broken connections and new leaders."""

import asyncio

import grpc
import grpc.aio
import pytest

from taskraft.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    error_pb2,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import reason_in
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.memory_node.memory_node import MemoryNode
from tests.turns import turns_until


class Connected:
    """A started node, a channel to it, and the stubs of its services."""

    def __init__(self, node):
        self.node = node
        self.channel = node.channel()
        self.tasks = task_service_pb2_grpc.TaskServiceStub(self.channel)
        self.tubes = tube_service_pb2_grpc.TubeServiceStub(self.channel)
        self.cluster = cluster_service_pb2_grpc.ClusterServiceStub(self.channel)

    async def create(self, name="emails", **fields):
        tube = tube_service_pb2.Tube(name=name, kind=tube_service_pb2.Tube.FIFOTTL, **fields)
        return await self.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))

    async def put(self, payload=b"one", tube="emails"):
        task = task_pb2.TaskSpec(payload=payload)
        return await self.tasks.PutTasks(pb.PutTasksRequest(tube=tube, tasks=[task]))

    async def open(self, stream):
        opening = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")])
        await stream.write(pb.SubscribeRequest(open=opening))
        assert (await stream.read()).HasField("opened")

    async def take(self, wait_ms=0):
        request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], wait_ms=wait_ms)
        return await self.tasks.TakeTasks(request)


@pytest.fixture
async def node():
    started = MemoryNode(NodeClocks())
    await started.start()
    return Connected(started)


async def test_calls_reach_the_handlers_of_the_service(node):
    await node.create()
    put = await node.put(b"payload")
    (task,) = (await node.take()).tasks
    assert (task.id, task.spec.payload) == (put.task_ids[0], b"payload")


async def test_a_refusal_has_the_status_and_the_reason_of_the_service(node):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await node.put(tube="missing")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert reason_in(refused.value.trailing_metadata()) == "TUBE_NOT_FOUND"


@pytest.mark.real_time
async def test_a_call_ends_at_its_deadline_and_the_handler_with_it(node):
    await node.create()
    stream = node.tasks.Subscribe(timeout=0.01)
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await stream.read()
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await turns_until(lambda: not node.node.components.load.streams)
    assert not node.channel.calls


async def test_a_lost_connection_ends_calls_until_it_is_restored(node):
    await node.create()
    waiting = asyncio.ensure_future(node.take(wait_ms=60_000))
    await turns_until(lambda: len(node.node.components.waiters) == 1)
    node.channel.cut()
    with pytest.raises(grpc.aio.AioRpcError) as lost:
        await waiting
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await node.put()
    assert lost.value.code() is refused.value.code() is grpc.StatusCode.UNAVAILABLE
    node.channel.restore()
    assert (await node.put()).task_ids


async def test_an_answer_can_be_lost_after_the_effect(node):
    await node.create()
    node.channel.loses_answers = True
    with pytest.raises(grpc.aio.AioRpcError):
        await node.put()
    node.channel.loses_answers = False
    assert len((await node.take()).tasks) == 1


async def test_a_stream_ends_when_the_leadership_ends(node):
    await node.create()
    stream = node.tasks.Subscribe()
    await node.open(stream)
    node.node.depose()
    assert (await stream.read()).HasField("go_away")
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await stream.read()
    assert reason_in(ended.value.trailing_metadata()) == "NO_LEADER"


async def test_the_next_leader_has_the_tasks(node):
    await node.create()
    await node.put()
    node.node.depose()
    assert node.node.components.phases.phase is NodePhase.WAITING
    node.node.elect()
    await node.node.wait_until_serving()
    assert len((await node.take()).tasks) == 1


async def test_a_cluster_in_memory_has_one_member(node):
    state = await node.cluster.GetClusterState(cluster_service_pb2.GetClusterStateRequest())
    assert [member.name for member in state.members] == ["memory"]
    member = cluster_service_pb2.AddMemberRequest(
        name="n2", peer_address="n2:1", address="n2:2", cluster_id="taskraft"
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await node.cluster.AddMember(member)
    assert reason_in(refused.value.trailing_metadata()) == "NOT_IMPLEMENTED"


def test_the_environment_does_not_change_the_settings(monkeypatch):
    monkeypatch.setenv("TASKRAFT_PAYLOAD_BYTES_MAX", "7")

    async def payload_bytes_max():
        return MemoryNode(NodeClocks()).components.config.payload_bytes_max

    assert asyncio.run(payload_bytes_max()) > 7


@pytest.mark.parametrize("tubes", [["emails"], ["emails", "news"]])
async def test_a_stream_ends_with_not_found_when_its_last_tube_is_dropped(node, tubes):
    for tube in tubes:
        await node.create(tube)
    stream = node.tasks.Subscribe()
    opening = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube=tube) for tube in tubes])
    await stream.write(pb.SubscribeRequest(open=opening))
    assert (await stream.read()).HasField("opened")
    for tube in tubes[1:]:
        await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name=tube, force=True))
    await node.put()
    await stream.write(pb.SubscribeRequest(credit=pb.SubscribeRequest.Credit(tasks=1)))
    assert (await stream.read()).tasks, "the stream serves the tubes that are left"
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails", force=True))
    answer = await stream.read()
    while not answer.HasField("go_away"):
        answer = await stream.read()
    assert answer.go_away.error.reason == error_pb2.Error.TUBE_NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await stream.read()
    assert ended.value.code() is grpc.StatusCode.NOT_FOUND
    assert reason_in(ended.value.trailing_metadata()) == "TUBE_NOT_FOUND"


async def test_a_stream_with_a_pattern_outlives_its_tubes(node):
    await node.create()
    stream = node.tasks.Subscribe()
    opening = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="em*")])
    credit = pb.SubscribeRequest.Credit(tasks=1)
    await stream.write(pb.SubscribeRequest(open=opening, credit=credit))
    assert (await stream.read()).HasField("opened")
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails", force=True))
    await node.create()
    await node.put()
    assert (await stream.read()).tasks
    stream.cancel()
