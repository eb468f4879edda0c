"""GetTaskEvents: the transitions of one task, newest first."""

import grpc
import pytest

from taskraft.v1 import feed_service_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import config_in, create, put, running, take

pytestmark = pytest.mark.real_time

Kind = feed_service_pb2.ChangeEvent


async def events(node, task_id, **fields):
    request = feed_service_pb2.GetTaskEventsRequest(tube="mail", task_id=task_id, **fields)
    return await node.feed.GetTaskEvents(request)


async def release(node, task):
    failure = {"type": "Timeout", "message": "late"}
    release = pb.Settlement.Release(failure=failure)
    settlement = pb.Settlement(tokens=[task.token], release=release)
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


async def retry_three_times(node):
    """Return the id of a task that failed three times, among other tasks."""
    await create(node, "mail")
    ids = (await put(node, *(b"other" for _ in range(50)), tube="mail")).task_ids
    for _ in range(3):
        (task,) = (await take(node, "mail", tasks_max=1)).tasks
        await release(node, task)
        await node.tasks.RestartTasks(
            pb.RestartTasksRequest(tube="mail", selector={"ids": [task.id]})
        )
    await put(node, *(b"later" for _ in range(50)), tube="mail")
    return ids[0]


async def told(node, task_id):
    """Return the kinds, whether they are complete, the reasons and the task ids."""
    answer = await events(node, task_id)
    found = answer.events
    kinds = [event.kind for event in found]
    return kinds, answer.complete, found[1].reason, {event.task_id for event in found}


async def test_the_events_of_a_task_lead_back_to_its_put(tmp_path):
    async with running(config_in(tmp_path)) as node:
        task_id = await retry_three_times(node)
        before = await told(node, task_id)
    assert before == (
        [Kind.RESTART, Kind.RELEASE, Kind.TAKE] * 3 + [Kind.PUT],
        True,
        "Timeout",
        {task_id},
    )
    async with running(config_in(tmp_path)) as node:  # now all events are in the store
        assert await told(node, task_id) == before


async def test_the_number_of_events_is_bounded(node):
    await create(node, "mail")
    (task_id,) = (await put(node, b"1", tube="mail")).task_ids
    await take(node, "mail", tasks_max=1)
    answer = await events(node, task_id, events_max=1)
    assert [event.kind for event in answer.events] == [Kind.TAKE]
    assert not answer.complete


async def test_a_missing_task_is_refused(node):
    await create(node, "mail")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await events(node, 7)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_task_of_a_temporary_tube_has_no_events(node):
    tube = tube_service_pb2.Tube(name="mail", kind=tube_service_pb2.Tube.FIFOTTL)
    tube.options.durability = tube_service_pb2.TubeOptions.TEMPORARY
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    (task_id,) = (await put(node, b"1", tube="mail")).task_ids
    answer = await events(node, task_id)
    assert (list(answer.events), answer.complete) == ([], False)
