"""The retry policy of a tube that names no policy."""

import pytest

from taskraft.v1 import task_pb2, task_service_pb2, tube_service_pb2
from tests.service.conftest import create, put, take

pytestmark = pytest.mark.real_time

State = task_pb2.Task


async def policy_of(node, name, **request):
    tube = tube_service_pb2.Tube(name=name, kind=tube_service_pb2.Tube.FIFOTTL)
    created = await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube, **request))
    policy = created.tube.options.retry
    return (
        policy.attempts_max,
        policy.backoff_ms,
        policy.factor_percent,
        policy.backoff_ms_max,
        policy.jitter_percent,
    )


async def test_a_tube_shows_the_default_policy(node):
    assert await policy_of(node, "mail") == (20, 1_000, 200, 600_000, 20)


@pytest.mark.parametrize("profile", ["tarantool", "xqueue", "t15", "rsqueue"])
async def test_a_profile_keeps_immediate_retries_without_a_limit(node, profile):
    assert (await policy_of(node, "mail", profile=profile))[:2] == (0, 0)


@pytest.mark.parametrize(
    ("failure", "state"),
    [(task_pb2.Failure(type="ValueError"), State.DELAYED), (None, State.READY)],
    ids=["with a failure", "without a failure"],
)
async def test_only_a_release_with_a_failure_backs_off(node, failure, state):
    await create(node, "mail")
    await put(node, b"1", tube="mail")
    (task,) = (await take(node, "mail", tasks_max=1)).tasks
    settlement = task_service_pb2.Settlement(
        tokens=[task.token], release=task_service_pb2.Settlement.Release(failure=failure)
    )
    await node.tasks.SettleTasks(task_service_pb2.SettleTasksRequest(settlements=[settlement]))
    chosen = task_pb2.TaskSelector(ids=[task.id])
    found = await node.tasks.GetTasks(
        task_service_pb2.GetTasksRequest(tube="mail", selector=chosen)
    )
    assert found.tasks[0].state == state
