"""ExecuteBatch on a running node: one entry, one answer per operation, safe retries."""

import asyncio

import grpc
import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.tasks.batch import _enlarged_tubes
from tests.service.conftest import config_in, create, put, reason_of, running, take

pytestmark = pytest.mark.real_time


def operations(*parts):
    return [pb.BatchOperation(**part) for part in parts]


def putting(tube, *payloads):
    tasks = [task_pb2.TaskSpec(payload=payload, headers={"h": b"v"}) for payload in payloads]
    return {"put": pb.PutTasksRequest(tube=tube, tasks=tasks)}


def acking(*tokens):
    settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())
    return {"settle": pb.SettleTasksRequest(settlements=[settlement])}


def deleting(*ids):
    selector = task_pb2.TaskSelector(ids=ids)
    return {"delete": pb.DeleteTasksRequest(tube="emails", selector=selector)}


async def execute(node, *parts, request_id=""):
    request = pb.ExecuteBatchRequest(operations=operations(*parts), request_id=request_id)
    return await node.tasks.ExecuteBatch(request)


async def taken_and_awaited(node):
    """Put two tasks and take the first; return it with a take that waits on the tube "next"."""
    await create(node)
    await create(node, name="next")
    await put(node, b"a", b"b")
    (taken,) = (await take(node, tasks_max=1)).tasks
    waiting = asyncio.ensure_future(take(node, tube="next", wait_ms=8_000))
    await node.waiting(1, tube="next")
    return taken, waiting


async def test_an_acknowledgement_and_a_put_are_one_entry(node):
    taken, waiting = await taken_and_awaited(node)
    answer = await execute(node, acking(taken.token), putting("next", b"c"), deleting(2))
    kinds = [result.WhichOneof("result") for result in answer.results]
    assert kinds == ["settle", "put", "delete"]
    assert list(answer.results[1].put.task_ids) == [1]
    assert answer.results[2].delete.count == 1
    (task,) = (await waiting).tasks
    assert (task.spec.payload, task.spec.headers["h"]) == (b"c", b"v")


async def test_a_batch_creates_the_tubes_of_its_puts_if_configured(tmp_path):
    async with running(config_in(tmp_path, auto_create_tubes=True)) as node:
        waiting = asyncio.ensure_future(take(node, tube="fresh", wait_ms=8_000))
        await node.waiting_anywhere(1)
        parts = putting("fresh", b"a"), putting("other", b"b"), putting("fresh", b"c")
        answer = await execute(node, *parts, request_id="r")
        assert [list(result.put.task_ids) for result in answer.results] == [[1], [1], [2]]
        assert [task.spec.payload for task in (await waiting).tasks] == [b"a", b"c"]
        drop = tube_service_pb2.DropTubeRequest(name="other")
        await node.tubes.DropTube(drop)
        again = await execute(node, *parts, request_id="r")
        assert [list(result.put.task_ids) for result in again.results] == [[1], [1], [2]]
        assert [tube.name for tube in node.queue.tubes()] == ["fresh"]


async def test_a_refused_batch_changes_nothing(node):
    await create(node)
    await put(node, b"a")
    before = node.queue.statistics(["emails"])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execute(node, putting("emails", b"x"), deleting(1), acking(77))
    assert reason_of(caught.value) == "LEASE_STALE"
    assert node.queue.statistics(["emails"]) == before


async def test_a_repeated_batch_has_one_effect_and_the_first_answer(node):
    await create(node)
    await put(node, b"a", b"b")
    (taken,) = (await take(node, tasks_max=1)).tasks
    parts = (acking(taken.token), putting("emails", b"c", b"d"), deleting(2))
    first = await execute(node, *parts, request_id="r")
    again = await execute(node, *parts, request_id="r")
    for one, other in zip(first.results, again.results, strict=True):
        assert one.WhichOneof("result") == other.WhichOneof("result")
        assert one.put.task_ids == other.put.task_ids
        assert one.delete.count == other.delete.count
    assert node.queue.statistics(["emails"])[0].total == 2


async def test_a_waiting_task_is_changed_together_with_an_acknowledgement(node):
    await create(node)
    await put(node, b"a", b"b")
    (taken,) = (await take(node, tasks_max=1)).tasks
    selector = task_pb2.TaskSelector(ids=[2])
    change = task_pb2.TaskUpdate(payload=b"changed", priority=3)
    update = pb.UpdateTasksRequest(tube="emails", selector=selector, update=change)
    answer = await execute(node, acking(taken.token), {"update": update})
    assert answer.results[1].update.count == 1
    (task,) = (await take(node)).tasks
    assert (task.spec.payload, task.priority) == (b"changed", 3)


async def test_a_task_is_moved_together_with_an_acknowledgement(node):
    taken, waiting = await taken_and_awaited(node)
    selector = task_pb2.TaskSelector(ids=[2])
    move = {"move": pb.MoveTasksRequest(tube="emails", selector=selector, move_to="next")}
    answer = await execute(node, acking(taken.token), move)
    assert [result.WhichOneof("result") for result in answer.results] == ["settle", "move"]
    assert answer.results[1].move.count == 1
    (task,) = (await waiting).tasks
    assert (task.tube, task.spec.payload) == ("next", b"b")


def test_a_batch_checks_disk_space_for_tubes_with_new_content():
    content, none = task_pb2.TaskUpdate(payload=b"x"), task_pb2.TaskUpdate(priority=1)
    parts = operations(
        putting("put", b"x"),
        {"update": pb.UpdateTasksRequest(tube="updated", update=content)},
        {"update": pb.UpdateTasksRequest(tube="same", update=none)},
        {"kick": pb.KickTasksRequest(tube="kicked", update=content)},
        {"kick": pb.KickTasksRequest(tube="same", update=none)},
        {"move": pb.MoveTasksRequest(tube="from", move_to="to", update=content)},
        {"move": pb.MoveTasksRequest(tube="home", to_origin=True, update=content)},
        {"move": pb.MoveTasksRequest(tube="from", move_to="elsewhere")},
        deleting(1),
    )
    enlarged = [*_enlarged_tubes(pb.ExecuteBatchRequest(operations=parts))]
    assert enlarged == ["put", "updated", "kicked", "to", "home"]


@pytest.mark.parametrize("operation", ["put", "settle"])
async def test_a_batch_returns_no_tasks(node, operation):
    await create(node)
    fields = {
        "put": {"tube": "emails", "tasks": [{"payload": b"x"}]},
        "settle": {"settlements": [{"tokens": [1], "ack": {}}]},
    }
    one = {operation: {**fields[operation], "return_tasks": True}}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.ExecuteBatch(pb.ExecuteBatchRequest(operations=[one]))
    assert f"{operation}.return_tasks" in caught.value.details()
