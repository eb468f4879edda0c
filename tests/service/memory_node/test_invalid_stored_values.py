"""A node serves with any invalid value in its state, names the value, and can remove the value.

The tests write the values into the applied state, because no call accepts such a value.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace

import grpc
import pytest

from taskraft.v1 import (
    bulk_sweep_pb2,
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    error_pb2,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.command_codecs.schedules import schedule_options
from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.memory_node.memory_node import MemoryNode
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.tube_options import OnAck, TubeKind
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from tests.turns import turns_until

Tube = tube_service_pb2.Tube
START_MS = 1_800_000_000_000


class Running:
    """A node in memory with a tube "t" of three tasks; callbacks that raise are kept."""

    def __init__(self):
        self.now_ms = START_MS
        self.node = MemoryNode(NodeClocks(lambda: self.now_ms, lambda: self.now_ms))
        channel = self.node.channel()
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.tubes = tube_service_pb2_grpc.TubeServiceStub(channel)
        self.cluster = cluster_service_pb2_grpc.ClusterServiceStub(channel)
        self.schedules = schedule_service_pb2_grpc.ScheduleServiceStub(channel)
        self.raised = []

    @property
    def components(self):
        return self.node.components

    @property
    def state(self):
        return self.node.machine.queue._state

    async def begin(self):
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.raised.append(context)
        )
        await self.node.start()
        await self.create("t")
        await self.put("t", 3)

    async def create(self, name):
        tube = Tube(name=name, kind=Tube.UTUBETTL)
        request = tube_service_pb2.CreateTubeRequest(tube=tube, if_not_exists=True)
        await self.tubes.CreateTube(request)

    async def put(self, tube, count=1):
        tasks = [task_pb2.TaskSpec(payload=b"x", subqueue=str(n)) for n in range(count)]
        return await self.tasks.PutTasks(pb.PutTasksRequest(tube=tube, tasks=tasks))

    async def take(self, tube):
        source = pb.TakeSource(tube=tube)
        request = pb.TakeTasksRequest(sources=[source], tasks_max=1, wait_ms=0)
        return (await self.tasks.TakeTasks(request)).tasks

    async def next_leader(self):
        """Let another leadership begin, as after a restart."""
        self.node.depose()
        self.node.elect()
        await self.node.wait_until_serving()

    async def assert_serves(self):
        """Assert that calls on another tube work, and that no callback has raised."""
        await self.create("other")
        await self.put("other")
        (taken,) = await self.take("other")
        settlement = pb.Settlement(tokens=[taken.token], ack=pb.Settlement.Ack())
        await self.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
        assert self.node.broken_by is None
        assert self.components.phases.phase is NodePhase.RUNNING
        assert not self.raised


@pytest.fixture
async def running():
    one = Running()
    await one.begin()
    yield one
    one.node.depose()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"time_zone": "Europe/Nowhere"}, "time_zone"),
        ({"time_zone": "localtime"}, "time_zone"),
        ({"time_zone": "\0"}, "time_zone"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": ""}, "cron"),
    ],
)
async def test_an_unusable_schedule_shows_its_error_and_the_others_run(running, fields, field):
    for name in ("bad", "good"):
        shown = schedule_service_pb2.Schedule(name=name, cron="* * * * *", tube="t")
        request = schedule_service_pb2.CreateScheduleRequest(schedule=shown)
        await running.schedules.CreateSchedule(request)
    bad = schedule_service_pb2.Schedule(
        **{"name": "bad", "cron": "* * * * *", "tube": "t"} | fields
    )
    running.state.schedules.find("bad").options = schedule_options(bad)
    running.now_ms += 60_000
    await running.next_leader()
    running.components.scheduler._run_due()
    await turns_until(lambda: running.state.schedules.find("good").last_task_id)
    listed = await running.schedules.ListSchedules(schedule_service_pb2.ListSchedulesRequest())
    by_name = {schedule.name: schedule for schedule in listed.schedules}
    error = by_name["bad"].last_error
    assert (error.reason, error.metadata["field"]) == (error_pb2.Error.INVALID_FIELD, field)
    assert not by_name["good"].HasField("last_error")
    request = schedule_service_pb2.GetScheduleRequest(name="bad", times_max=3)
    got = await running.schedules.GetSchedule(request)
    assert not got.times_ms
    assert got.schedule.last_error.metadata["field"] == field
    await running.assert_serves()
    good = schedule_service_pb2.Schedule(name="bad", cron="* * * * *", tube="t")
    await running.schedules.UpdateSchedule(
        schedule_service_pb2.UpdateScheduleRequest(schedule=good)
    )
    running.components.scheduler._run_due()
    assert not running.components.scheduler.problems
    await running.schedules.DeleteSchedule(schedule_service_pb2.DeleteScheduleRequest(name="bad"))


async def test_an_unusable_schedule_is_tried_again_and_can_be_deleted(running):
    shown = schedule_service_pb2.Schedule(name="bad", cron="* * * * *", tube="t")
    await running.schedules.CreateSchedule(
        schedule_service_pb2.CreateScheduleRequest(schedule=shown)
    )
    stored = running.state.schedules.find("bad")
    usable = stored.options
    shown.time_zone = "Europe/Nowhere"
    stored.options = schedule_options(shown)
    running.now_ms += 60_000
    running.components.scheduler._run_due()
    assert set(running.components.scheduler.problems) == {"bad"}
    stored.options = usable
    running.now_ms += 60_000
    running.components.scheduler._run_due()
    await turns_until(lambda: stored.last_task_id)
    assert not running.components.scheduler.problems
    stored.options = schedule_options(shown)
    running.now_ms += 60_000
    running.components.scheduler._run_due()
    await running.schedules.DeleteSchedule(schedule_service_pb2.DeleteScheduleRequest(name="bad"))
    running.components.scheduler._run_due()
    assert not running.components.scheduler.problems
    await running.assert_serves()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"filter": "state ="}, "the stored filter is invalid"),
        ({"filter": "no_such_field = 1"}, "the stored filter is invalid"),
        ({"filter": "(" * 200}, "the stored filter is invalid"),
        ({"move_to": "no tube/*"}, "TUBE_NOT_FOUND"),
        ({"principal": "nobody"}, ""),
        ({"rate_per_second": 0}, ""),
    ],
)
async def test_a_sweep_with_an_invalid_value_ends_with_its_problem(running, fields, problem):
    await running.create("u")
    runner = running.components.bulk_runner
    runner.phase_changed(NodePhase.ENDING)
    request = bulk_sweep_pb2.StartBulkSweepRequest(
        tube="t",
        filter="id >= 1",
        action=bulk_sweep_pb2.StartBulkSweepRequest.MOVE,
        move_to="u",
        rate_per_second=1_000,
    )
    number = (await running.tasks.StartBulkSweep(request)).sweep.number
    sweep = running.state.bulk_sweeps.get(number)
    sweep.request = replace(sweep.request, **fields)
    runner.phase_changed(NodePhase.RUNNING)
    await turns_until(lambda: sweep.is_ended or running.raised)
    assert not running.raised
    listed = await running.tasks.ListBulkSweeps(bulk_sweep_pb2.ListBulkSweepsRequest())
    assert problem in listed.sweeps[0].problem
    await running.assert_serves()


OPTIONS = (
    {"retry": RetryPolicy(attempts_max=(1 << 31) - 1)},
    {"retry": RetryPolicy(backoff_ms=(1 << 62), backoff_ms_max=(1 << 62))},
    {"retry": RetryPolicy(backoff_ms=5, backoff_ms_max=1)},
    {"retry": RetryPolicy(backoff_ms=5, factor_percent=0)},
    {"retry": RetryPolicy(backoff_ms=5, factor_percent=(1 << 31) - 1)},
    {"retry": RetryPolicy(backoff_ms=5_000, jitter_percent=255)},
    {"retry": RetryPolicy(attempts_max=1, exhausted=Exhausted.DEAD_LETTER)},
    {"dead_letter_tube": "no tube/*"},
    {"delay_ms": -1},
    {"ttl_ms": -1},
    {"ttr_ms": -1},
    {"ttl_ms": (1 << 63) - 1},
    {"ttr_ms": (1 << 63) - 1},
    {"retain_ms": -1, "on_ack": OnAck.RETAIN},
    {"priority": 5, "priority_min": 10, "priority_max": -10},
    {"subqueue_weights": (("0", 0),)},
    {"concurrency": (1 << 31) - 1},
    {"rate_per_second": (1 << 31) - 1},
    {"rate_burst": 3},
    {"capacity_tasks": (1 << 63) - 1},
)


@pytest.mark.parametrize("fields", OPTIONS, ids=str)
async def test_a_tube_with_an_invalid_option_can_be_changed_and_dropped(running, fields):
    tube = running.state.tubes.get("t")
    (taken,) = await running.take("t")
    tube.set_options(replace(tube.options, **fields), START_MS)
    running.now_ms += 1_000
    failure = task_pb2.Failure(message="x")
    release = pb.Settlement.Release(failure=failure)
    settlement = pb.Settlement(tokens=[taken.token], release=release)
    await running.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    with suppress(grpc.aio.AioRpcError):
        await running.put("t")
    await running.take("t")
    running.now_ms += 10 * 86_400_000
    await running.assert_serves()
    listed = await running.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
    assert "t" in {each.name for each in listed.tubes}
    await running.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="t", force=True))
    await running.assert_serves()


@pytest.mark.parametrize(
    "fields",
    [
        {"failover_grace_ms": -5},
        {"failover_grace_ms": 1 << 62},
        {"auto_create_tubes": True, "auto_create_profile": "no such profile"},
        {"auto_create_tubes": True, "auto_create_kind": TubeKind.CUSTOM},
        {"feed_retention_ms": -5},
        {"feed_bytes_max": -5},
        {"session_ttr_ms": -5},
        {"upgrade_hold_ms": -5},
        {"cluster_version_max": -5},
        {"cluster_version_max": (1 << 31) - 1},
    ],
    ids=str,
)
async def test_an_invalid_setting_can_be_changed(running, fields):
    running.state.settings = ReplicatedSettings(**fields)
    with suppress(grpc.aio.AioRpcError):
        await running.put("new")
    await running.node.keep_house()
    await running.components.version_keeper.check()
    await running.assert_serves()
    await running.cluster.GetClusterState(cluster_service_pb2.GetClusterStateRequest())
    await running.next_leader()
    settings = cluster_service_pb2.ClusterSettings(
        failover_grace_ms=0,
        auto_create_tubes=False,
        auto_create_profile="",
        feed_retention_ms=86_400_000,
        feed_bytes_max=1 << 30,
        session_ttr_ms=1_000,
        upgrade_hold_ms=1_000,
        cluster_version_max=0,
    )
    await running.cluster.Configure(cluster_service_pb2.ConfigureRequest(settings=settings))
    assert running.state.settings.session_ttr_ms == 1_000
    assert running.node.broken_by is None
    assert not running.raised


@pytest.mark.parametrize("field", ["profile", "driver"])
async def test_a_tube_with_an_unknown_profile_or_driver_can_be_dropped(running, field):
    tube = running.state.tubes.get("t")
    setattr(tube, field, "no such name")
    await running.put("t")
    assert await running.take("t")
    await running.assert_serves()
    listed = await running.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
    assert "no such name" in str(listed)
    await running.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="t", force=True))
    await running.assert_serves()
