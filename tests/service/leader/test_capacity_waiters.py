"""Puts that wait for tube capacity: order, time-out, change of leader."""

import asyncio

import grpc
import pytest

from taskraft.v1 import cluster_service_pb2, error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.forwarding_metadata import WAITED_KEY
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


async def create(node, **capacity):
    options = tube_service_pb2.TubeOptions(**capacity)
    kind = tube_service_pb2.Tube.LIMFIFOTTL
    tube = tube_service_pb2.Tube(name="emails", kind=kind, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


def putting(node, *payloads, room_wait_ms=10_000, **fields):
    tasks = [task_pb2.TaskSpec(payload=payload) for payload in payloads]
    request = pb.PutTasksRequest(tube="emails", tasks=tasks, room_wait_ms=room_wait_ms, **fields)
    return asyncio.ensure_future(node.tasks.PutTasks(request, timeout=20))


async def lined_up(node, puts):
    await turns_until(lambda: node.server.components.capacity_waiters.count == puts)


async def test_a_put_within_capacity_does_not_wait(node):
    await create(node, capacity_tasks=2)
    assert list((await putting(node, b"1", b"2")).task_ids) == [1, 2]


async def test_puts_that_wait_are_served_in_order_of_their_arrival(node):
    await create(node, capacity_tasks=1)
    await put(node, b"0")
    waiting = []
    for number in range(3):
        waiting.append(putting(node, b"%d" % number))
        await lined_up(node, number + 1)
    for number in range(3):
        assert [one.done() for one in waiting] == [place < number for place in range(3)]
        await ack(node, (await take(node, wait_ms=5_000)).tasks)
        assert list((await waiting[number]).task_ids) == [number + 2]
    assert node.server.components.capacity_waiters.count == 0


async def test_a_large_put_waits_for_capacity_for_all_its_tasks(node):
    await create(node, capacity_bytes=10)
    await put(node, b"12345", b"67890")
    large, small = putting(node, b"1234567890"), None
    await lined_up(node, 1)
    small = putting(node, b"1")
    await lined_up(node, 2)
    (first,) = (await take(node, tasks_max=1)).tasks
    await ack(node, [first])
    assert not large.done()
    assert not small.done()
    await ack(node, (await take(node)).tasks)
    assert list((await large).task_ids) == [3]
    await ack(node, (await take(node)).tasks)
    assert list((await small).task_ids) == [4]


async def test_a_put_that_times_out_puts_the_tasks_that_fit(node):
    await create(node, capacity_tasks=2)
    await put(node, b"0")
    answer = await putting(node, b"1", b"2", room_wait_ms=1)
    assert list(answer.task_ids) == [2, 0]
    assert [error.error.reason for error in answer.errors] == [error_pb2.Error.TUBE_FULL]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await putting(node, b"3", room_wait_ms=1, atomic=True)
    assert reason_of(caught.value) == "TUBE_FULL"


async def test_a_repeated_put_that_waited_has_one_effect(node):
    await create(node, capacity_tasks=1)
    first = await putting(node, b"1", request_id="r")
    again = await putting(node, b"1", request_id="r")
    assert list(first.task_ids) == list(again.task_ids) == [1]


async def test_cancelled_put_leaves_the_queue(node):
    await create(node, capacity_bytes=4)
    await put(node, b"123")
    big = putting(node, b"1234")
    await lined_up(node, 1)
    small = putting(node, b"1", room_wait_ms=60_000)
    await lined_up(node, 2)
    big.cancel()
    # The small put is served at once, long before the end of its own wait.
    await turns_until(small.done)
    assert list((await small).task_ids) == [2]


async def test_waiting_put_fails_when_its_tube_is_dropped(node):
    await create(node, capacity_tasks=1)
    await put(node, b"0")
    waiting = putting(node, b"1")
    await lined_up(node, 1)
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert reason_of(caught.value) == "TUBE_NOT_FOUND"


async def test_a_put_that_waits_follows_the_leader(tmp_path):
    async with cluster_in(tmp_path) as three:
        await create(three.leader, capacity_tasks=1)
        await put(three.leader, b"0")
        old = three.leader
        here, there = putting(old, b"1"), putting(three.followers[0], b"2")
        await lined_up(old, 2)
        heir = three.followers[0].server.config.node_name
        await old.cluster.TransferLeadership(
            cluster_service_pb2.TransferLeadershipRequest(name=heir), timeout=10
        )
        await three.settled()
        await lined_up(three.leader, 2)
        for _ in range(3):
            await ack(three.leader, (await take(three.leader, wait_ms=5_000)).tasks)
        assert {*(await here).task_ids, *(await there).task_ids} == {2, 3}


async def test_the_wait_at_an_earlier_leader_counts_towards_the_wait_of_a_put(node):
    """The new leader learns how long a call has already waited."""
    await create(node, capacity_tasks=1)
    await put(node, b"0")
    request = pb.PutTasksRequest(
        tube="emails", tasks=[task_pb2.TaskSpec(payload=b"1")], room_wait_ms=50_000
    )
    answer = await node.tasks.PutTasks(request, metadata=((WAITED_KEY, "50000"),), timeout=5)
    assert [error.error.reason for error in answer.errors] == [error_pb2.Error.TUBE_FULL]
