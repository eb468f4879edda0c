"""A time to live or to run of 0 is refused, except in the profiles that define it."""

import grpc
import pytest

from taskraft.v1 import (
    error_pb2,
    group_service_pb2,
    group_service_pb2_grpc,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.queue.entities.tube_profiles import PROFILES
from tests.service.conftest import put, reason_of, take

pytestmark = pytest.mark.real_time

INVALID_FIELD = error_pb2.Error.Reason.Name(error_pb2.Error.INVALID_FIELD)
OLDER = sorted(filter(None, PROFILES))
TUBE = "emails"
ZEROS = ({"ttl_ms": 0}, {"ttr_ms": 0})


async def create_in(node, profile, **options):
    tube = tube_service_pb2.Tube(name=TUBE, kind=tube_service_pb2.Tube.FIFOTTL, options=options)
    request = tube_service_pb2.CreateTubeRequest(tube=tube, profile=profile)
    return await node.tubes.CreateTube(request)


async def update_tube(node, zero):
    request = tube_service_pb2.UpdateTubeRequest(name=TUBE, options=zero)
    request.update_mask.paths.extend(zero)
    return await node.tubes.UpdateTube(request)


async def put_zero(node, zero):
    return await put(node, b"x", **zero)


async def put_in_batch(node, zero):
    one = pb.PutTasksRequest(tube=TUBE, tasks=[task_pb2.TaskSpec(**zero)])
    return await node.tasks.ExecuteBatch(
        pb.ExecuteBatchRequest(operations=[pb.BatchOperation(put=one)])
    )


async def update(node, zero):
    (task_id,) = (await put(node, b"x")).task_ids
    selector = task_pb2.TaskSelector(ids=[task_id])
    request = pb.UpdateTasksRequest(tube=TUBE, selector=selector, update=zero)
    return await node.tasks.UpdateTasks(request)


async def kick(node, zero):
    request = pb.KickTasksRequest(tube=TUBE, count=1, update=zero)
    return await node.tasks.KickTasks(request)


async def create_schedule(node, zero):
    schedule = schedule_service_pb2.Schedule(name="s", tube=TUBE, cron="* * * * *", spec=zero)
    stub = schedule_service_pb2_grpc.ScheduleServiceStub(node.channel)
    return await stub.CreateSchedule(schedule_service_pb2.CreateScheduleRequest(schedule=schedule))


async def create_group(node, zero):
    group = group_service_pb2.Group(name="g", end_task={"tube": TUBE, "spec": zero})
    stub = group_service_pb2_grpc.GroupServiceStub(node.channel)
    return await stub.CreateGroup(group_service_pb2.CreateGroupRequest(group=group))


async def released(node, release):
    await put(node, b"x")
    (task,) = (await take(node)).tasks
    settlement = pb.Settlement(tokens=[task.token], release=release)
    return await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


async def release(node, zero):
    return await released(node, {"update": zero})


async def release_with_new_life(node, _zero):
    return await released(node, {"ttl_policy": "RESET", "ttl_ms": 0})


async def take_zero(node, _zero):
    return await take(node, ttr_ms=0)


async def subscribe(node, _zero):
    call = node.tasks.Subscribe()
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube=TUBE)], ttr_ms=0)
    await call.write(pb.SubscribeRequest(open=opened))
    try:
        return await call.read()
    finally:
        call.cancel()


BOTH = (update_tube, put_zero, put_in_batch, update, kick, create_schedule, create_group, release)
CASES = [(act, zero) for act in BOTH for zero in ZEROS]
CASES += [(act, ZEROS[1]) for act in (release_with_new_life, take_zero, subscribe)]


@pytest.mark.parametrize(("act", "zero"), CASES)
async def test_zero_is_refused_with_advice(node, act, zero):
    await create_in(node, "")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await act(node, zero)
    assert reason_of(caught.value) == INVALID_FIELD
    assert "leave it out for no limit" in caught.value.details()


@pytest.mark.parametrize(("act", "zero"), CASES)
async def test_zero_is_accepted_in_a_profile_that_defines_it(node, act, zero):
    await create_in(node, "tarantool")
    assert await act(node, zero) is not None


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("profile", ["", *OLDER])
async def test_options_of_a_new_tube(node, profile, zero):
    if profile:
        assert (await create_in(node, profile, **zero)).tube.name == TUBE
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create_in(node, profile, **zero)
    assert reason_of(caught.value) == INVALID_FIELD


async def test_a_take_from_a_pattern_names_no_profile(node):
    await create_in(node, "tarantool")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await take(node, tube="*", ttr_ms=0)
    assert reason_of(caught.value) == INVALID_FIELD
