"""Records of failed tasks that were removed: by id and by key, at once or after a wait."""

import pytest

from taskraft.v1 import error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import ack, put, take

pytestmark = pytest.mark.real_time

Task = task_pb2.Task
ORDER = task_pb2.TaskSelector(keys=[task_pb2.UniqueKey(parts=["order", "1"])])


async def create(node):
    retry = task_pb2.RetryPolicy(attempts_max=1, exhausted=task_pb2.RetryPolicy.REMOVE)
    tube = tube_service_pb2.Tube(
        name="emails",
        kind=tube_service_pb2.Tube.FIFOTTL,
        options=tube_service_pb2.TubeOptions(retry=retry),
    )
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))


async def fail(node):
    """Put a task and let it fail; return its id."""
    (task_id,) = (await put(node, b"content", unique_key=["order", "1"])).task_ids
    (task,) = (await take(node)).tasks
    failure = task_pb2.Failure(type="Broken", message="no such article")
    settlement = pb.Settlement(tokens=[task.token], release=pb.Settlement.Release(failure=failure))
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    return task_id


async def get(node, selector):
    return await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=selector))


async def wait(node, selector, **fields):
    request = pb.WaitTasksRequest(tube="emails", selector=selector, wait_ms=0, **fields)
    return await node.tasks.WaitTasks(request)


async def test_the_failure_of_a_removed_task_is_found_by_id_and_by_key(node):
    await create(node)
    task_id = await fail(node)
    for selector in (ORDER, task_pb2.TaskSelector(ids=[task_id])):
        answer = await get(node, selector)
        assert [one.error.reason for one in answer.errors] == [error_pb2.Error.TASK_NOT_FOUND]
        (failed,) = answer.failed
        (waited,) = (await wait(node, selector)).tasks
        for one in (failed, waited):
            assert (one.id, one.outcome, one.attempt) == (task_id, Task.FAILED, 1)
            assert (one.failure.type, one.failure.message) == ("Broken", "no such article")
            assert list(one.spec.unique_key) == ["order", "1"]
            assert (one.state, one.spec.payload) == (Task.STATE_UNSPECIFIED, b"")
            assert one.since_ms >= one.created_ms > 0


async def test_a_new_put_with_the_key_replaces_the_record_and_success_removes_it(node):
    await create(node)
    await fail(node)
    await put(node, b"again", unique_key=["order", "1"])
    (waited,) = (await wait(node, ORDER)).tasks
    assert waited.outcome == Task.TIMEOUT, "the new task has not ended"
    await ack(node, (await take(node)).tasks)
    answer = await wait(node, ORDER)
    assert ([*answer.tasks], len(answer.errors)) == ([], 1)
    assert not (await get(node, ORDER)).failed


async def test_a_wait_for_any_ends_with_a_task_that_failed_before(node):
    await create(node)
    failed = await fail(node)
    (waiting,) = (await put(node, b"waits")).task_ids
    selector = task_pb2.TaskSelector(ids=[waiting, failed])
    answer = await node.tasks.WaitTasks(
        pb.WaitTasksRequest(tube="emails", selector=selector, wait_ms=60_000, any=True)
    )
    assert [(one.id, one.outcome) for one in answer.tasks] == [(waiting, 0), (failed, Task.FAILED)]
