"""Waiting for outcomes of tasks: every end, several tasks, and changes of leader."""

import asyncio

import grpc
import pytest

from taskraft.v1 import cluster_service_pb2, error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

Task = task_pb2.Task


def ask(*ids, tube="emails", wait_ms=10_000, **fields):
    selector = task_pb2.TaskSelector(ids=ids)
    return pb.WaitTasksRequest(tube=tube, selector=selector, wait_ms=wait_ms, **fields)


def wait(node, *ids, **fields):
    return asyncio.ensure_future(node.tasks.WaitTasks(ask(*ids, **fields), timeout=20))


def outcomes(answer):
    return [(task.id, Task.Outcome.Name(task.outcome)) for task in answer.tasks]


async def waited(node, count):
    """Wait until calls wait for the given number of tasks."""
    await turns_until(lambda: len(node.server.components.outcomes) == count)


async def settle(node, tasks, **action):
    settlement = pb.Settlement(tokens=[task.token for task in tasks], **action)
    return await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


async def delete(node, *ids):
    selector = task_pb2.TaskSelector(ids=ids)
    return await node.tasks.DeleteTasks(pb.DeleteTasksRequest(tube="emails", selector=selector))


async def bury(node, *ids):
    selector = task_pb2.TaskSelector(ids=ids)
    return await node.tasks.BuryTasks(pb.BuryTasksRequest(tube="emails", selector=selector))


async def test_an_acknowledgement_gives_waiting_callers_the_result(node):
    await create(node)
    await put(node, b"x")
    waiting = wait(node, 1)
    await waited(node, 1)
    taken = (await take(node)).tasks
    await settle(node, taken, ack=pb.Settlement.Ack(result=b"42", result_content_type="text/plain"))
    (task,) = (await waiting).tasks
    assert (task.outcome, task.state, task.token) == (Task.PROCESSED, 0, 0)
    assert (task.result, task.result_content_type) == (b"42", "text/plain")
    assert task.spec.payload == b"x"
    assert not node.queue.watch.tubes
    assert len(node.server.components.outcomes) == 0


async def test_every_kind_of_end_has_its_outcome(node):
    await create(node)
    await put(node, b"delete")
    await put(node, b"bury")
    await put(node, b"expire", ttl_ms=1)
    await put(node, b"truncate")
    waiting = wait(node, 1, 2, 3, 4)
    await delete(node, 1)
    await bury(node, 2)
    await turns_until(lambda: node.queue.get_tasks("emails", [3]) == [None])
    await node.tubes.TruncateTube(tube_service_pb2.TruncateTubeRequest(name="emails"))
    answer = await waiting
    named = dict(outcomes(answer))
    assert named.pop(3, "EXPIRED") == "EXPIRED"  # the task may have ended before the call arrived
    assert named == {1: "DELETED", 2: "BURIED_OUT", 4: "DELETED"}


async def test_dropping_the_tube_ends_the_wait(node):
    await create(node)
    await put(node, b"x")
    waiting = wait(node, 1)
    await waited(node, 1)
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails"))
    assert outcomes(await waiting) == [(1, "DELETED")]


async def test_a_kept_outcome_is_returned_at_once(node):
    keep = tube_service_pb2.TubeOptions(on_ack=tube_service_pb2.TubeOptions.KEEP)
    kept = tube_service_pb2.Tube(name="emails", kind=tube_service_pb2.Tube.FIFOTTL, options=keep)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=kept))
    await put(node, b"done", b"buried", b"ready")
    await ack(node, (await take(node, tasks_max=1)).tasks)
    await bury(node, 2)
    answer = await wait(node, 1, 2)
    assert outcomes(answer) == [(1, "PROCESSED"), (2, "BURIED_OUT")]
    assert answer.tasks[0].state == Task.DONE


async def test_an_unknown_task_is_refused_on_its_own(node):
    await create(node)
    await put(node, b"x", b"y")
    await delete(node, 1)
    answer = await wait(node, 1, 99, 2, wait_ms=0)
    assert [(error.item, error.error.reason) for error in answer.errors] == [(0, 2), (1, 2)]
    assert outcomes(answer) == [(2, "TIMEOUT")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wait(node, 1, tube="nowhere")
    assert reason_of(caught.value) == "TUBE_NOT_FOUND"


async def test_a_wait_for_any_ends_with_the_first_outcome(node):
    await create(node)
    await put(node, b"x", b"y")
    first, all_ = wait(node, 1, 2, any=True), wait(node, 1, 2)
    await waited(node, 4)
    await delete(node, 2)
    assert outcomes(await first) == [(1, "OUTCOME_UNSPECIFIED"), (2, "DELETED")]
    assert not all_.done()
    await delete(node, 1)
    assert outcomes(await all_) == [(1, "DELETED"), (2, "DELETED")]


async def test_a_wait_that_times_out_returns_the_tasks_as_they_are(node):
    await create(node)
    await put(node, b"x")
    await take(node)
    (task,) = (await wait(node, 1, wait_ms=1)).tasks
    assert (task.outcome, task.state) == (Task.TIMEOUT, Task.TAKEN)
    assert not node.queue.watch.tubes


async def test_a_wait_for_progress_ends_with_progress(node):
    await create(node)
    await put(node, b"x")
    (taken,) = (await take(node)).tasks
    end, progress = wait(node, 1), wait(node, 1, until=pb.WaitTasksRequest.PROGRESS)
    await waited(node, 2)
    await settle(node, [taken], touch=pb.Settlement.Touch(restart=True))
    touch = pb.Settlement.Touch(progress=task_pb2.Progress(basis_points=5_000, note="half"))
    await settle(node, [taken], touch=touch)
    (task,) = (await progress).tasks
    assert (task.outcome, task.state) == (Task.OUTCOME_UNSPECIFIED, Task.TAKEN)
    assert (task.progress.basis_points, task.progress.note) == (5_000, "half")
    assert not end.done()
    await settle(node, [taken], ack=pb.Settlement.Ack())
    assert outcomes(await end) == [(1, "PROCESSED")]


async def test_a_moved_task_is_followed(node):
    await create(node)
    await create(node, name="other")
    await put(node, b"x", tube="other")
    await put(node, b"y")
    waiting = wait(node, 1)
    await waited(node, 1)
    release = pb.Settlement.Release(move_to="other")
    await settle(node, (await take(node)).tasks, release=release)
    taken = (await take(node, tube="other")).tasks
    assert [task.id for task in taken] == [1, 2]
    await ack(node, taken[:1])
    assert not waiting.done()
    await ack(node, taken[1:])
    (task,) = (await waiting).tasks
    assert (task.tube, task.id, task.outcome) == ("other", 2, Task.PROCESSED)


async def test_a_cancelled_wait_leaves_nothing_behind(node):
    await create(node)
    await put(node, b"x")
    waiting = node.tasks.WaitTasks(ask(1), timeout=20)
    task = asyncio.ensure_future(waiting)
    await waited(node, 1)
    waiting.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    await turns_until(lambda: not node.queue.watch.tubes)


async def test_a_put_waits_for_its_outcomes(node):
    await create(node)
    request = pb.PutTasksRequest(
        tube="emails",
        tasks=[task_pb2.TaskSpec(payload=b"a"), task_pb2.TaskSpec(payload=b"b", ttl_ms=1)],
        outcome_wait_ms=10_000,
    )
    putting = asyncio.ensure_future(node.tasks.PutTasks(request, timeout=20))
    taken = (await take(node, wait_ms=5_000)).tasks
    await settle(node, taken, ack=pb.Settlement.Ack(result=b"r"))
    answer = await putting
    assert list(answer.task_ids) == [1, 2]
    assert [task.outcome for task in answer.outcomes] == [Task.PROCESSED, Task.EXPIRED]
    assert answer.outcomes[0].result == b"r"
    assert not node.queue.watch.tubes


async def test_a_put_whose_wait_times_out_has_been_done(node):
    await create(node)
    request = pb.PutTasksRequest(
        tube="emails", tasks=[task_pb2.TaskSpec()], outcome_wait_ms=1, request_id="r"
    )
    first = await node.tasks.PutTasks(request)
    again = await node.tasks.PutTasks(request)
    for answer in (first, again):
        assert list(answer.task_ids) == [1]
        assert outcomes(pb.WaitTasksResponse(tasks=answer.outcomes)) == [(1, "TIMEOUT")]


async def test_refused_items_of_a_put_keep_their_positions(node):
    await create(node, kind=tube_service_pb2.Tube.FIFO)
    request = pb.PutTasksRequest(
        tube="emails",
        tasks=[task_pb2.TaskSpec(priority=5), task_pb2.TaskSpec(payload=b"ok")],
        outcome_wait_ms=1,
    )
    answer = await node.tasks.PutTasks(request)
    assert list(answer.task_ids) == [0, 1]
    assert [task.outcome for task in answer.outcomes] == [0, Task.TIMEOUT]


async def hand_over(three):
    heir = three.followers[0].server.config.node_name
    await three.leader.cluster.TransferLeadership(
        cluster_service_pb2.TransferLeadershipRequest(name=heir), timeout=10
    )
    await three.settled()


async def test_waiting_calls_follow_the_leader(tmp_path):
    async with cluster_in(tmp_path) as three:
        await create(three.leader)
        await put(three.leader, b"x")
        old = three.leader
        here, there = wait(old, 1), wait(three.followers[0], 1)
        await waited(old, 2)
        await hand_over(three)
        await waited(three.leader, 2)
        assert len(old.server.components.outcomes) == 0
        await delete(old, 1)
        assert outcomes(await here) == outcomes(await there) == [(1, "DELETED")]


@pytest.mark.parametrize("request_id", ["", "r"])
async def test_a_waiting_put_follows_the_leader_and_puts_once(tmp_path, request_id):
    async with cluster_in(tmp_path) as three:
        await create(three.leader)
        old = three.leader
        request = pb.PutTasksRequest(
            tube="emails",
            tasks=[task_pb2.TaskSpec(payload=b"x")],
            outcome_wait_ms=15_000,
            request_id=request_id,
        )
        putting = asyncio.ensure_future(old.tasks.PutTasks(request, timeout=20))
        await waited(old, 1)
        await hand_over(three)
        await waited(three.leader, 1)
        taken = (await take(three.leader)).tasks
        assert [task.id for task in taken] == [1]
        await ack(three.leader, taken)
        answer = await putting
        assert outcomes(pb.WaitTasksResponse(tasks=answer.outcomes)) == [(1, "PROCESSED")]
        assert three.leader.queue.statistics(["emails"])[0].total == 0


@pytest.mark.parametrize("durability", ["REPLICATED", "TEMPORARY"])
async def test_an_end_without_a_record_is_told_from_a_task_that_never_existed(node, durability):
    tube = {"name": "emails", "kind": "FIFOTTL", "options": {"durability": durability}}
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    first = (await put(node, b"x")).task_ids[0]
    second = (await put(node, b"y")).task_ids[0]
    await ack(node, (await take(node, tasks_max=1)).tasks)
    fields = {"ended_without_record": True, "any": True}
    answer = await wait(node, 7, first, second, second + 1, **fields)
    gone, waiting = answer.tasks
    assert (gone.tube, gone.id, gone.outcome) == ("emails", first, Task.NOT_KEPT)
    assert (waiting.id, waiting.outcome) == (second, Task.TIMEOUT)
    assert [(one.item, one.error.reason) for one in answer.errors] == [
        (0, error_pb2.Error.TASK_NOT_FOUND),
        (3, error_pb2.Error.TASK_NOT_FOUND),
    ]
    refused = await wait(node, first)
    assert [one.error.reason for one in refused.errors] == [error_pb2.Error.TASK_NOT_FOUND]
