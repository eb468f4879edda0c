"""Bursts of puts at a follower of three real nodes."""

import asyncio

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.rpc.servers import SERVERS
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import create, put

pytestmark = [pytest.mark.real_time, *SERVERS[1].marks]

BURST = 50
PATH = "/taskraft.v1.TaskService/PutTasks"


@pytest.fixture
async def three(tmp_path):
    async with cluster_in(tmp_path, edge="native") as one:
        await create(one.leader)
        yield one


async def execute_together(node, requests):
    """Serve requests of one turn at a node, without a client, and return the answers."""
    table = node.server._clients._table

    class Context:
        def invocation_metadata(self):
            return ()

        def peer(self):
            return "ipv4:127.0.0.1:1"

        def time_remaining(self):
            return None

        def set_trailing_metadata(self, _metadata):
            pass

        async def write(self, raw):
            self.answer = raw

    async def execute(raw):
        context = Context()
        answer = await table[PATH].handle(raw, context)
        return pb.PutTasksResponse.FromString(context.answer if answer is None else answer)

    return await asyncio.gather(*map(execute, requests))


def requests_of(count):
    return [
        pb.PutTasksRequest(
            tube="emails", tasks=[task_pb2.TaskSpec(payload=b"%d" % number)]
        ).SerializeToString()
        for number in range(count)
    ]


async def test_a_burst_at_a_follower_is_one_message_one_task_and_few_entries(three, monkeypatch):
    follower, leader = three.followers[0].server.components, three.leader.server.components
    node = three.followers[0]
    await put(node, b"x")  # opens the channel to the leader
    handled = []
    create_task = asyncio.get_running_loop().create_task

    def counted(coroutine, **options):
        handled.append(coroutine.__qualname__)
        return create_task(coroutine, **options)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_task", counted)
    entries = three.leader.server.node.counters.entries
    forwarded, ok = follower.forwarder.calls, leader.endpoint.counts.by_outcome[PATH, "OK"]
    answers = await execute_together(node, requests_of(BURST))
    assert len({one for answer in answers for one in answer.task_ids}) == BURST
    assert follower.forwarder.shared.messages == 1
    assert follower.forwarder.calls == forwarded + BURST
    assert leader.endpoint.counts.by_outcome[PATH, "OK"] == ok + BURST
    assert handled.count("NativeServer._serve") == 1  # the message, at the leader
    assert handled.count("SharedCalls._exchange") == 1
    assert three.leader.server.node.counters.entries <= entries + 3
    assert not leader.load.calls + leader.load.held_bytes


async def test_calls_that_the_leader_cannot_begin_are_served_too(three):
    node = three.followers[0]
    await put(node, b"x")
    waiting = pb.PutTasksRequest(
        tube="emails", tasks=[task_pb2.TaskSpec(payload=b"y")], room_wait_ms=1_000
    ).SerializeToString()
    answers = await execute_together(node, [waiting, *requests_of(3)])
    assert node.server.components.forwarder.shared.messages == 1
    assert len({one for answer in answers for one in answer.task_ids}) == 4
