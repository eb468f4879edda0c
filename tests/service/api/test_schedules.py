"""Schedules on running nodes: each time has exactly one task, across leaders."""

import asyncio
from functools import partial

import grpc
import pytest

from taskraft.v1 import (
    cluster_service_pb2,
    error_pb2,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    task_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.clock import cluster_clock
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.languages.cron import cron
from taskraft_service.leader.scheduler import Scheduler
from taskraft_service.process import node_server
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import config_in, create, reason_of, running
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

MINUTE = 60_000


class Jumping:
    """The clocks of all nodes in this process; the test advances them."""

    def __init__(self, monkeypatch):
        self.ahead_ms = 0
        clocks = NodeClocks(
            lambda: cluster_clock.monotonic_ms() + self.ahead_ms,
            lambda: cluster_clock.wall_ms() + self.ahead_ms,
        )
        self.wall_ms = clocks.wall_ms
        build = partial(node_server.NodeComponents, clocks=clocks)
        monkeypatch.setattr(node_server, "NodeComponents", build)

    def to_next_minute(self, nodes):
        """Advance to just after a full minute, and wake the schedulers."""
        now_ms = self.wall_ms()
        self.ahead_ms += cron("* * * * *", "").after(now_ms) - now_ms + 10
        for node in nodes:
            node.server.components.scheduler._set_timer()


async def test_the_next_times_of_a_schedule_are_computed(tmp_path):
    async with running(config_in(tmp_path)) as node:
        await create(node, "mail")
        wanted = schedule(name="s", cron="0 12 29 2 *", paused=True)
        request = schedule_service_pb2.CreateScheduleRequest(request_id="a", schedule=wanted)
        await stub(node).CreateSchedule(request)

        async def times(count, after_ms=0):
            request = schedule_service_pb2.GetScheduleRequest(
                name="s", times_max=count, after_ms=after_ms
            )
            return list((await stub(node).GetSchedule(request)).times_ms)

        noon_2024, noon_2028 = 1_709_208_000_000, 1_835_438_400_000
        assert await times(0) == []
        assert await times(1, noon_2024 - 1) == [noon_2024]
        assert await times(2, noon_2024) == [noon_2028, 1_961_668_800_000]
        assert len(await times(100, noon_2024)) == 2, "later times than 10 years are left out"


@pytest.fixture
def clock(monkeypatch):
    return Jumping(monkeypatch)


def stub(node):
    return schedule_service_pb2_grpc.ScheduleServiceStub(node.channel)


def schedule(**fields):
    spec = task_pb2.TaskSpec(payload=b"work", headers={"mine": b"kept"})
    return schedule_service_pb2.Schedule(
        **{"name": "s", "cron": "* * * * *", "tube": "emails", "spec": spec, **fields}
    )


async def make(node, **fields):
    request = schedule_service_pb2.CreateScheduleRequest(schedule=schedule(**fields))
    return (await stub(node).CreateSchedule(request)).schedule


async def change(node, etag="", **fields):
    request = schedule_service_pb2.UpdateScheduleRequest(schedule=schedule(**fields), etag=etag)
    return (await stub(node).UpdateSchedule(request)).schedule


async def shown(node):
    answer = await stub(node).ListSchedules(schedule_service_pb2.ListSchedulesRequest())
    return list(answer.schedules)


async def slots(node):
    """Return the scheduled times of the tasks in the tube."""
    answer = await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails", page_size=1_000))
    return [int(task.spec.headers["taskraft-slot-ms"]) for task in answer.tasks]


async def test_a_due_time_becomes_a_task_with_the_time(tmp_path, clock):
    async with running(config_in(tmp_path)) as node:
        await create(node)
        made = await make(node, jitter_ms=1)
        assert made.next_ms % MINUTE == 0
        clock.to_next_minute([node])
        await turns_until(lambda: node.queue.schedule("s").last_task_id == 1)
        assert await slots(node) == [made.next_ms]
        (task,) = (await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails"))).tasks
        assert task.spec.payload == b"work"
        assert task.spec.headers["mine"] == b"kept"
        (now,) = await shown(node)
        assert (now.last_ms, now.last_task_id) == (made.next_ms, 1)
        assert now.next_ms == made.next_ms + MINUTE
        assert now.spec == schedule().spec


async def test_a_paused_schedule_puts_nothing_and_catches_up_as_configured(tmp_path, clock):
    async with running(config_in(tmp_path)) as node:
        await create(node)
        made = await make(node, catch_up=schedule_service_pb2.Schedule.ALL)
        paused = await change(node, paused=True)
        assert paused.next_ms == 0
        for _ in range(3):
            clock.to_next_minute([node])
        resumed = await change(node, catch_up=schedule_service_pb2.Schedule.ALL)
        assert resumed.next_ms == made.next_ms
        await turns_until(lambda: node.queue.schedule("s").last_task_id == 3)
        assert await slots(node) == [made.next_ms + minute * MINUTE for minute in range(3)]


async def test_a_refused_time_is_shown_with_its_reason(tmp_path, clock):
    async with running(config_in(tmp_path)) as node:
        await make(node)
        clock.to_next_minute([node])
        await turns_until(lambda: node.queue.schedule("s").left_out == 1)
        (now,) = await shown(node)
        assert now.left_out == 1
        assert now.last_error.reason == error_pb2.Error.TUBE_NOT_FOUND


async def test_schedules_wait_while_disk_space_is_low(tmp_path, clock):
    async with running(config_in(tmp_path)) as node:
        await create(node)
        made = await make(node)
        node.server.components.disk.low_bytes = 2**62
        clock.to_next_minute([node])
        await turns_until(
            lambda: node.server.components.scheduler._due.get("s", 0) > clock.wall_ms()
        )
        assert await slots(node) == []
        for call in (make(node, name="another"), change(node)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert reason_of(caught.value) == "DISK_LOW"
        assert (await change(node, paused=True)).paused
        node.server.components.disk.low_bytes = 0
        await change(node, catch_up=schedule_service_pb2.Schedule.ONE)
        await turns_until(lambda: node.queue.schedule("s").done_ms >= made.next_ms)
        # The schedule missed the time because of the pause; the catch-up policy decides about
        # missed times.
        assert await slots(node) == [made.next_ms]


async def test_a_removed_schedule_puts_nothing(tmp_path, clock):
    async with running(config_in(tmp_path)) as node:
        await create(node)
        await make(node)
        request = schedule_service_pb2.DeleteScheduleRequest(name="s", request_id="r")
        await stub(node).DeleteSchedule(request)
        await stub(node).DeleteSchedule(request)
        await make(node, name="other")
        clock.to_next_minute([node])
        await turns_until(lambda: node.queue.schedule("other").last_task_id == 1)
        assert [one.name for one in await shown(node)] == ["other"]
        assert len(await slots(node)) == 1


async def test_schedules_survive_a_restart_and_are_listed_in_pages(tmp_path, clock):
    config = config_in(tmp_path, collect_entries=1)
    async with running(config) as node:
        await create(node)
        for name in ("a", "b", "c"):
            await make(node, name=name, catch_up=schedule_service_pb2.Schedule.ONE)
    async with running(config) as node:
        first = await stub(node).ListSchedules(
            schedule_service_pb2.ListSchedulesRequest(page_size=2)
        )
        rest = await stub(node).ListSchedules(
            schedule_service_pb2.ListSchedulesRequest(page_token=first.next_page_token)
        )
        assert [one.name for one in (*first.schedules, *rest.schedules)] == ["a", "b", "c"]
        clock.to_next_minute([node])
        await turns_until(lambda: all(view.last_task_id for view in node.queue.schedules()))


async def test_each_time_has_one_task_across_leaders(tmp_path, clock, monkeypatch):
    """A deposed leader may still propose times that the new leader proposes too."""
    async with cluster_in(tmp_path) as three:
        await create(three.leader)
        every = schedule_service_pb2.Schedule.ALL
        made = await make(three.leader, catch_up=every)
        await turns_until(lambda: all(node.queue.schedule("s") for node in three.nodes))
        for round_ in range(1, 13):
            leader = three.leader
            clock.to_next_minute(three.nodes)
            if round_ % 3 == 0:
                heir = three.followers[round_ % 2].server.config.node_name
                await leader.cluster.TransferLeadership(
                    cluster_service_pb2.TransferLeadershipRequest(name=heir), timeout=10
                )
                await three.settled()
            elif round_ % 4 == 0:
                # One leader plans twice from the same state, like two leaders.
                leader.server.components.scheduler._run("s", clock.wall_ms())
                leader.server.components.scheduler._run("s", clock.wall_ms())
            until = made.next_ms + (round_ - 1) * MINUTE
            # Move the clocks of all nodes: an entry applied after a jump would count as a minute
            # old.
            await turns_until(
                lambda until=until: all(
                    node.queue.schedule("s").done_ms >= until for node in three.nodes
                )
            )
            await three.settled()
        assert await slots(three.followers[0]) == [made.next_ms + n * MINUTE for n in range(12)]
        # The leader may propose further entries at any time, such as the counts of these calls.
        await turns_until(lambda: len({node.queue.applied_index for node in three.nodes}) == 1)
        assert len({node.queue.digest() for node in three.nodes}) == 1


async def merge(node, *paths, etag="", **fields):
    fields = {"name": "s"} | fields
    request = schedule_service_pb2.UpdateScheduleRequest(
        schedule=fields, update_mask={"paths": paths}, etag=etag
    )
    return (await stub(node).UpdateSchedule(request)).schedule


async def got(node):
    return (
        await stub(node).GetSchedule(schedule_service_pb2.GetScheduleRequest(name="s"))
    ).schedule


async def test_a_mask_changes_only_the_named_fields(node):
    await create(node)
    made = await make(node, time_zone="Europe/Vienna", jitter_ms=5)
    paused = await merge(node, "paused", paused=True)
    assert (paused.time_zone, paused.jitter_ms, paused.paused) == ("Europe/Vienna", 5, True)
    assert paused.spec == made.spec
    reset = await merge(node, "paused", "time_zone", "jitter_ms", "cron", cron="0 3 * * *")
    assert (reset.cron, reset.time_zone, reset.jitter_ms, reset.paused) == (
        "0 3 * * *",
        "",
        0,
        False,
    )
    assert reset == await got(node)
    # The merged schedule is checked as a whole.
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await merge(node, "cron", cron="0 61 * * *")
    assert reason_of(caught.value) == "INVALID_FIELD"


async def test_a_stale_etag_refuses_an_update_and_a_deletion(node):
    await create(node)
    first = await make(node)
    second = await change(node, jitter_ms=5, etag=first.etag)
    assert second.etag not in ("", first.etag)
    stale = schedule_service_pb2.DeleteScheduleRequest(name="s", etag=first.etag)
    for call in (
        change(node, jitter_ms=6, etag=first.etag),
        merge(node, "paused", paused=True, etag=first.etag),
        stub(node).DeleteSchedule(stale),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "SCHEDULE_CHANGED"
        assert caught.value.code() is grpc.StatusCode.ABORTED
    assert await got(node) == second
    stale.etag = second.etag
    await stub(node).DeleteSchedule(stale)


async def test_concurrent_merges_keep_each_others_fields(node):
    await create(node)
    await make(node)
    await asyncio.gather(
        merge(node, "paused", paused=True),
        merge(node, "jitter_ms", jitter_ms=7),
        merge(node, "time_zone", time_zone="Europe/Vienna"),
    )
    found = await got(node)
    assert (found.paused, found.jitter_ms, found.time_zone) == (True, 7, "Europe/Vienna")


async def test_a_repeated_merge_has_no_second_effect(node):
    await create(node)
    await make(node)
    request = schedule_service_pb2.UpdateScheduleRequest(
        request_id="r", schedule={"name": "s", "jitter_ms": 7}, update_mask={"paths": ["jitter_ms"]}
    )
    first = await stub(node).UpdateSchedule(request)
    await change(node, jitter_ms=8)
    again = await stub(node).UpdateSchedule(request)
    assert (first.schedule.jitter_ms, again.schedule.jitter_ms) == (7, 8)
    await stub(node).DeleteSchedule(schedule_service_pb2.DeleteScheduleRequest(name="s"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(node).UpdateSchedule(request)
    assert reason_of(caught.value) == "SCHEDULE_NOT_FOUND"


async def test_a_follower_forwards_calls_about_schedules(tmp_path):
    async with cluster_in(tmp_path) as three:
        made = await make(three.followers[0], name="x")
        assert made.name == "x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await make(three.followers[1], name="x")
        assert reason_of(caught.value) == "SCHEDULE_EXISTS"


def test_a_scheduler_that_does_not_lead_drops_its_changes():
    queue = type("Queue", (), {"changed_schedules": lambda _self: {"a": None}})()
    scheduler = Scheduler(lambda: queue, None, lambda: 0, has_room=lambda: True)
    scheduler.applied(0)
    assert not scheduler._heap
