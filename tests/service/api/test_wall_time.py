"""Every instant that a caller gives or sees is in wall time; durations and deadlines stay exact."""

import asyncio
import importlib
import pkgutil
import time

import pytest

import taskraft.v1
from taskraft.v1 import (
    bulk_sweep_pb2,
    cluster_service_pb2,
    feed_service_pb2,
    group_service_pb2,
    group_service_pb2_grpc,
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.sessions import SET_WALL_OFFSET
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.stubs.log.v1 import log_pb2
from tests.service.conftest import create, put
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

DAY_MS = 86_400_000
AHEAD_MS = 1_000 * DAY_MS
"""The wall offset, so large that no instant in cluster time equals an instant in wall time."""
NEAR_MS = 2 * DAY_MS
"""Maximum distance between an instant of the test and the current time."""
INSTANTS = {
    "after_ms",
    "at_ms",
    "before_ms",
    "begins_ms",
    "committed_ms",
    "counted_since_ms",
    "created_ms",
    "ended_ms",
    "expire_at_ms",
    "expires_ms",
    "first_ms",
    "high_ms",
    "last_ms",
    "lease_until_ms",
    "next_ms",
    "now_ms",
    "oldest_ready_ms",
    "retain_until_ms",
    "since_ms",
    "snapshot_ms",
    "started_ms",
    "taken_at_ms",
    "times_ms",
    "until_ms",
    "visible_at_ms",
}
DURATIONS = {
    "backoff_ms",
    "backoff_ms_max",
    "delay_ms",
    "duration_ms",
    "failover_grace_ms",
    "feed_retention_ms",
    "heartbeat_ms",
    "idle_ttl_ms",
    "increment_ms",
    "jitter_ms",
    "keep_ms",
    "oldest_ready_age_ms",
    "outcome_wait_ms",
    "retain_ms",
    "retry_ms",
    "room_wait_ms",
    "run_p50_ms",
    "run_p95_ms",
    "session_ttr_ms",
    "silence_ms_max",
    "staleness_ms_max",
    "step_ms",
    "ttl_ms",
    "ttr_ms",
    "unique_ms",
    "upgrade_hold_ms",
    "wait_ms",
    "wait_p50_ms",
    "wait_p95_ms",
    "wall_deviation_ms",
    "wall_offset_ms",
}
OF_EVENTS = {"at_ms", "begins_ms", "first_ms", "high_ms"}
"""Instants of events, in the wall time of the event. A later correction does not change them."""
NEVER_SET = {"after_ms", "before_ms", "last_ms"}
"""Instants that no response of this test has: requests have the first two, and the schedule has put
nothing yet."""


def fields_of_the_contract():
    for module in pkgutil.iter_modules(taskraft.v1.__path__):
        if module.name.endswith("_pb2"):
            contract = importlib.import_module(f"taskraft.v1.{module.name}").DESCRIPTOR
            messages = [*contract.message_types_by_name.values()]
            while messages:
                message = messages.pop()
                messages += message.nested_types
                yield from message.fields


def test_each_time_of_the_contract_is_an_instant_or_a_duration():
    times = {field.name for field in fields_of_the_contract() if "_ms" in field.name}
    assert times == INSTANTS | DURATIONS
    assert not INSTANTS & DURATIONS


def instants_in(message):
    """Yield the instants of a message by name, at any depth, without those that are 0."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in value if field.is_repeated else [value]:
                if hasattr(each, "ListFields"):
                    yield from instants_in(each)
        elif field.name in INSTANTS:
            for each in value if field.is_repeated else [value]:
                yield field.name, each


async def set_wall_offset(node, wall_offset_ms):
    message = log_pb2.SetWallOffset(wall_offset_ms=wall_offset_ms)
    await node.server.components.router.submit(encode_leader_command(SET_WALL_OFFSET, message))


@pytest.fixture
async def ahead(node):
    """Return a node whose wall time was corrected after some tasks were put and taken."""
    await create(node)
    await put(node, b"ready", ttl_ms=DAY_MS)
    await put(node, b"delayed", delay_ms=DAY_MS)
    await put(node, b"taken", b"done")
    await set_wall_offset(node, AHEAD_MS)
    return node


def take_request(**fields):
    return pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], ttr_ms=DAY_MS, **fields)


async def settled(node, tokens, **action):
    settlement = pb.Settlement(tokens=tokens, **action)
    return await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


async def answers(node):
    """Call every method whose response has instants; yield the responses."""
    taken = await node.tasks.TakeTasks(take_request(tasks_max=2))
    yield taken
    touched, done = (task.token for task in taken.tasks)
    yield await settled(node, [touched], touch={"increment_ms": 5})
    keep = {"keep": pb.Settlement.Ack.ZOMBIE, "retain_ms": DAY_MS}
    yield await settled(node, [done], ack=keep)
    batch = pb.SettleTasksRequest(
        settlements=[pb.Settlement(tokens=[touched], touch=pb.Settlement.Touch(increment_ms=5))]
    )
    operations = [pb.BatchOperation(settle=batch)]
    yield await node.tasks.ExecuteBatch(pb.ExecuteBatchRequest(operations=operations))
    selector = task_pb2.TaskSelector(ids=[1, 2, 3, 4])
    yield await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=selector))
    yield await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails"))
    wait = pb.WaitTasksRequest(tube="emails", selector=task_pb2.TaskSelector(ids=[1]), wait_ms=1)
    yield await node.tasks.WaitTasks(wait)
    yield await node.tasks.TakeTasks(take_request(types=["none"], wait_ms=1))
    yield await node.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
    yield await node.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
    tube = tube_service_pb2.Tube(name="emails", kind=tube_service_pb2.Tube.FIFOTTL)
    again = tube_service_pb2.CreateTubeRequest(tube=tube, if_not_exists=True)
    yield await node.tubes.CreateTube(again)
    update = tube_service_pb2.UpdateTubeRequest(name="emails", update_mask={"paths": ["ttr_ms"]})
    yield await node.tubes.UpdateTube(update)
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
    yield opened
    ids = [opened.session.session_id]
    yield await node.sessions.KeepSessions(session_service_pb2.KeepSessionsRequest(session_ids=ids))
    yield await node.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
    sweep = bulk_sweep_pb2.StartBulkSweepRequest(tube="emails", action="KICK", filter="id > 999")
    yield await node.tasks.StartBulkSweep(sweep)
    yield await node.tasks.ListBulkSweeps(bulk_sweep_pb2.ListBulkSweepsRequest())
    async for each in group_and_schedule_answers(node):
        yield each
    waiting = asyncio.ensure_future(
        node.tasks.TakeTasks(take_request(types=["none"], wait_ms=DAY_MS))
    )
    await turns_until(lambda: len(node.server.components.waiters) == 1)
    yield await node.tubes.ListConsumers(tube_service_pb2.ListConsumersRequest(tube="emails"))
    waiting.cancel()
    async for each in feed_answers(node):
        yield each
    async for each in stream_answers(node):
        yield each
    yield await node.tubes.ListFailures(tube_service_pb2.ListFailuresRequest())
    async for part in node.cluster.SaveSnapshot(cluster_service_pb2.SaveSnapshotRequest()):
        yield part.header
    yield await node.cluster.GetClusterState(cluster_service_pb2.GetClusterStateRequest())


async def group_and_schedule_answers(node):
    groups = group_service_pb2_grpc.GroupServiceStub(node.channel)
    group = group_service_pb2.Group(name="g")
    yield await groups.CreateGroup(group_service_pb2.CreateGroupRequest(group=group))
    yield await groups.StartGroup(group_service_pb2.StartGroupRequest(name="g"))
    yield await groups.GetGroup(group_service_pb2.GetGroupRequest(name="g"))
    schedules = schedule_service_pb2_grpc.ScheduleServiceStub(node.channel)
    schedule = schedule_service_pb2.Schedule(name="s", cron="0 * * * *", tube="emails")
    create_schedule = schedule_service_pb2.CreateScheduleRequest(schedule=schedule)
    yield await schedules.CreateSchedule(create_schedule)
    get_schedule = schedule_service_pb2.GetScheduleRequest(name="s", times_max=2)
    yield await schedules.GetSchedule(get_schedule)
    yield await schedules.ListSchedules(schedule_service_pb2.ListSchedulesRequest())


async def feed_answers(node):
    describe = feed_service_pb2.DescribeFeedRequest()
    feed = await node.feed.DescribeFeed(describe)
    cursor = feed_service_pb2.FeedCursor(feed_id=feed.feed_id, next_seq={0: 0})
    await node.feed.CommitCursor(
        feed_service_pb2.CommitCursorRequest(consumer="c", cursor=cursor, idle_ttl_ms=DAY_MS)
    )
    yield await node.feed.DescribeFeed(describe)


async def stream_answers(node):
    stream = node.tasks.Subscribe()
    opening = pb.SubscribeRequest.Open(
        sources=[pb.TakeSource(tube="emails")], session_ttr_ms=DAY_MS, ttr_ms=DAY_MS
    )
    credit = pb.SubscribeRequest.Credit(tasks=1)
    await stream.write(pb.SubscribeRequest(open=opening, credit=credit))
    opened = await stream.read()
    session_id = opened.opened.session_id
    tasks = opened if opened.tasks else await stream.read()
    yield tasks
    touch = pb.Settlement(tokens=[tasks.tasks[0].token], touch=pb.Settlement.Touch(increment_ms=5))
    await stream.write(pb.SubscribeRequest(settlements=[touch], heartbeat=True))
    heard = [await stream.read()]
    while not any(each.HasField("heartbeat") for each in heard) or not any(
        each.settled for each in heard
    ):
        heard.append(await stream.read())
    for each in heard:
        yield each
    again = node.tasks.Subscribe()
    opening.session_id = session_id
    await again.write(pb.SubscribeRequest(open=opening))
    yield await again.read()
    for each in (stream, again):
        await each.done_writing()


async def test_every_instant_of_every_response_is_in_wall_time(ahead):
    wall_ms = time.time_ns() // 1_000_000 + AHEAD_MS
    seen = set()
    async for answer in answers(ahead):
        for name, instant_ms in instants_in(answer):
            seen.add(name)
            if name in OF_EVENTS:
                continue
            assert abs(instant_ms - wall_ms) < NEAR_MS, f"{name} of {type(answer).__name__}"
    assert seen - OF_EVENTS == INSTANTS - NEVER_SET - OF_EVENTS


async def test_events_have_the_wall_time_at_which_they_happened(ahead):
    await ahead.tasks.TakeTasks(take_request(tasks_max=1))
    wall_ms = time.time_ns() // 1_000_000
    events = [event async for event in read_events(ahead)]
    puts = [event for event in events if event.kind == feed_service_pb2.ChangeEvent.PUT]
    (take,) = (event for event in events if event.kind == feed_service_pb2.ChangeEvent.TAKE)
    assert all(abs(event.at_ms - wall_ms) < NEAR_MS for event in puts), (
        "the events before the correction"
    )
    assert abs(take.at_ms - AHEAD_MS - wall_ms) < NEAR_MS
    assert 0 <= take.at_ms - take.since_ms < NEAR_MS, "the time in the earlier state is exact"
    assert 0 <= take.at_ms - take.created_ms < NEAR_MS
    at = feed_service_pb2.ResolveTimestampRequest(at_ms=take.at_ms)
    cursor = (await ahead.feed.ResolveTimestamp(at)).cursor
    assert take.seq in cursor.next_seq.values()


async def read_events(node):
    feed = await node.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
    for part in feed.partitions:
        if part.high_seq == part.low_seq:
            continue
        request = feed_service_pb2.ReadChangesRequest(
            partition=part.partition, to_seq=part.high_seq, from_seq=part.low_seq
        )
        async for chunk in node.feed.ReadChanges(request):
            for event in chunk.events:
                yield event


async def test_an_instant_that_a_caller_names_is_in_wall_time(ahead):
    wall_ms = time.time_ns() // 1_000_000 + AHEAD_MS
    (task_id,) = (await put(ahead, b"later", visible_at_ms=wall_ms + DAY_MS)).task_ids
    awaited = task_pb2.TaskReference(tube="emails", id=1)
    held = {"depends_on": [task_pb2.Dependency(task=awaited)]}
    (held_id,) = (await put(ahead, b"held", visible_at_ms=wall_ms + DAY_MS, **held)).task_ids
    await put(ahead, b"now", visible_at_ms=wall_ms - DAY_MS)
    (first,) = (await ahead.tasks.TakeTasks(take_request(tasks_max=1))).tasks
    assert first.id == 1
    await settled(ahead, [first.token], ack={})
    selector = task_pb2.TaskSelector(ids=[task_id, held_id])
    got = await ahead.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=selector))
    for task in got.tasks:
        assert task.state == task_pb2.Task.DELAYED
        assert abs(task.visible_at_ms - wall_ms - DAY_MS) < 1_000
    for chosen, found in (
        (f"visible_at_ms = {task.visible_at_ms}", [task_id, held_id]),
        (f"visible_at_ms > {wall_ms} AND visible_at_ms < {task.visible_at_ms}", [2]),
        (f"created_ms < {wall_ms - DAY_MS}", []),
    ):
        listed = await ahead.tasks.ListTasks(pb.ListTasksRequest(tube="emails", filter=chosen))
        assert [each.id for each in listed.tasks] == found, chosen


async def test_leases_and_delays_do_not_end_by_a_correction(node):
    await create(node)
    await put(node, b"taken", b"delayed", ttl_ms=DAY_MS)
    await put(node, b"delayed", delay_ms=DAY_MS)
    (task,) = (await node.tasks.TakeTasks(take_request(tasks_max=1))).tasks
    await set_wall_offset(node, AHEAD_MS)
    statistics = await node.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
    tasks = statistics.total.tasks
    assert (tasks.taken, tasks.ready, tasks.delayed) == (1, 1, 1)
    assert not (await settled(node, [task.token], ack={})).errors
