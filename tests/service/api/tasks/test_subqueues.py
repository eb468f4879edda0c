"""Tubes with sub-queues over real gRPC: strict order, and consumers that are woken in order."""

import asyncio

import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import ack, create, take

pytestmark = pytest.mark.real_time

UTUBETTL = tube_service_pb2.Tube.UTUBETTL


async def put(node, *specs):
    tasks = [
        task_pb2.TaskSpec(payload=payload, subqueue=subqueue, **wishes)
        for subqueue, payload, wishes in specs
    ]
    return await node.tasks.PutTasks(pb.PutTasksRequest(tube="emails", tasks=tasks))


def payloads(answer):
    return [task.spec.payload for task in answer.tasks]


async def test_a_sub_queue_gives_one_task_at_a_time(node):
    await create(node, kind=UTUBETTL)
    await put(node, ("a", b"a1", {}), ("a", b"a2", {}), ("b", b"b1", {}))
    taken = await take(node)
    assert payloads(taken) == [b"a1", b"b1"]
    assert not (await take(node)).tasks
    await ack(node, taken.tasks[:1])
    assert payloads(await take(node)) == [b"a2"]


async def test_a_waiting_consumer_gets_the_task_that_an_ack_frees(node):
    await create(node, kind=UTUBETTL)
    await put(node, ("a", b"a1", {}), ("a", b"a2", {}))
    taken = await take(node)
    waiting = asyncio.ensure_future(take(node, wait_ms=5_000))
    await node.waiting(1)
    before = node.queue.applied_index
    await ack(node, taken.tasks)
    answer = await waiting
    assert payloads(answer) == [b"a2"]
    # The task is freed and leased by one entry.
    assert answer.revision == before + 1


async def test_a_waiting_consumer_gets_the_task_that_the_end_of_a_taken_task_frees(node):
    await create(node, kind=UTUBETTL)
    await put(node, ("a", b"a1", {}), ("a", b"a2", {}))
    (task,) = (await take(node)).tasks
    waiting = asyncio.ensure_future(take(node, wait_ms=5_000))
    await node.waiting(1)
    selector = task_pb2.TaskSelector(ids=[task.id])
    await node.tasks.DeleteTasks(pb.DeleteTasksRequest(tube="emails", selector=selector))
    assert payloads(await waiting) == [b"a2"]


async def test_options_of_sub_queues_are_stored_and_shown(node):
    options = tube_service_pb2.TubeOptions(
        subqueue_concurrency=2, subqueue_weights={"gold": 5, "tin": 1}
    )
    tube = tube_service_pb2.Tube(name="emails", kind=UTUBETTL, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    (shown,) = (await node.tubes.ListTubes(tube_service_pb2.ListTubesRequest())).tubes
    assert shown.options.subqueue_concurrency == 2
    assert dict(shown.options.subqueue_weights) == {"gold": 5, "tin": 1}
    await put(node, *(("gold", b"%d" % number, {}) for number in range(5)))
    assert payloads(await take(node, tasks_max=9)) == [b"0", b"1"]


async def test_a_waiting_consumer_gets_a_task_when_the_rate_of_its_sub_queue_allows_it(node):
    """Only the time of the log wakes the consumer; no call does."""
    options = tube_service_pb2.TubeOptions(
        subqueue_concurrency=9, subqueue_rate_per_second=20, subqueue_rate_burst=2
    )
    tube = tube_service_pb2.Tube(name="emails", kind=UTUBETTL, options=options)
    made = await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    shown = made.tube.options
    assert (shown.subqueue_rate_per_second, shown.subqueue_rate_burst) == (20, 2)
    await put(node, *(("anna", b"%d" % number, {}) for number in range(3)), ("bob", b"b", {}))
    at_once = await take(node)
    assert payloads(at_once) == [b"0", b"1", b"b"]
    later = await take(node, wait_ms=10_000)
    assert payloads(later) == [b"2"]
    assert later.tasks[0].since_ms - at_once.tasks[0].since_ms >= 50
