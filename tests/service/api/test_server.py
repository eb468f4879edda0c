"""A single node over real gRPC: tasks, sessions and tubes from start to end."""

import asyncio
import threading

import grpc
import pytest

from taskraft.v1 import (
    feed_service_pb2,
    group_service_pb2,
    group_service_pb2_grpc,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc import methods
from tests.service.conftest import ack, config_in, create, put, put_many, reason_of, running, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

GRPC_BYTES_MAX = 4 * 1024 * 1024


async def test_a_task_is_put_taken_and_acknowledged(node):
    await create(node)
    answer = await put(node, b"one", b"two")
    assert list(answer.task_ids) == [1, 2]
    taken = await take(node)
    assert [task.spec.payload for task in taken.tasks] == [b"one", b"two"]
    settled = await ack(node, taken.tasks)
    assert not settled.errors
    statistics = await node.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
    assert statistics.total.tasks.total == 0
    assert statistics.total.calls.ack == 2


async def test_the_spec_of_the_producer_is_delivered_unchanged(node):
    await create(node)
    spec = task_pb2.TaskSpec(
        payload=b"body",
        content_type="text/plain",
        headers={"traceparent": b"00-1", "own": b"\xff"},
        priority=-7,
        type="mail",
    )
    await node.tasks.PutTasks(pb.PutTasksRequest(tube="emails", tasks=[spec]))
    (task,) = (await take(node)).tasks
    assert task.spec == spec
    assert (task.tube, task.id, task.priority, task.attempt) == ("emails", 1, -7, 1)
    assert task.state == task_pb2.Task.TAKEN


async def test_the_state_survives_a_restart(tmp_path):
    config = config_in(tmp_path)
    async with running(config) as node:
        await create(node)
        await put(node, b"kept")
    async with running(config) as node:
        taken = await take(node)
        assert [task.spec.payload for task in taken.tasks] == [b"kept"]


async def test_a_take_waits_for_a_put(node):
    await create(node)
    waiting = asyncio.ensure_future(take(node, wait_ms=5_000))
    await node.waiting(1)
    before = node.queue.applied_index
    await put(node, b"late")
    taken = await waiting
    assert [task.spec.payload for task in taken.tasks] == [b"late"]
    # One entry has put and leased the task.
    assert taken.revision == before + 1


async def test_consumers_are_served_in_order_of_their_arrival(node):
    await create(node)
    waiting = []
    for place in range(3):
        waiting.append(asyncio.ensure_future(take(node, tasks_max=1, wait_ms=5_000)))
        await node.waiting(place + 1)
    await put(node, b"0", b"1", b"2")
    answers = await asyncio.gather(*waiting)
    assert [answer.tasks[0].spec.payload for answer in answers] == [b"0", b"1", b"2"]


async def test_a_wait_ends_with_an_empty_answer(node):
    await create(node)
    answer = await take(node, wait_ms=30)
    assert not answer.tasks
    assert len(node.server.components.waiters) == 0


async def test_a_wait_ends_before_the_callers_deadline(node, monkeypatch):
    """The answer has 29.9 seconds to reach the caller, so a slow machine passes too."""
    monkeypatch.setattr(methods, "DEADLINE_MARGIN_MS", 29_900)
    await create(node)
    request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")])
    answer = await node.tasks.TakeTasks(request, timeout=30)
    assert not answer.tasks


async def test_a_cancelled_consumer_is_removed(node):
    await create(node)
    waiting = node.tasks.TakeTasks(
        pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")]), timeout=30
    )
    await node.waiting(1)
    waiting.cancel()
    await node.waiting(0)
    await put(node, b"x")
    assert len((await take(node)).tasks) == 1


async def test_a_pattern_finds_later_tubes(node):
    waiting = asyncio.ensure_future(take(node, tube="mail.*", wait_ms=5_000))
    await node.waiting_anywhere(1)
    await create(node, "mail.out")
    await put(node, b"x", tube="mail.out")
    assert (await waiting).tasks[0].tube == "mail.out"


async def test_a_delayed_task_reaches_a_waiting_consumer(node):
    await create(node)
    waiting = asyncio.ensure_future(take(node, wait_ms=5_000))
    await node.waiting(1)
    await put(node, b"later", delay_ms=50)
    (task,) = (await waiting).tasks
    assert task.since_ms - task.created_ms >= 50


async def test_an_expired_lease_makes_the_task_ready_again(node):
    await create(node)
    await put(node, b"x")
    first = await take(node, ttr_ms=40)
    again = await take(node, wait_ms=5_000)
    assert [task.attempt for task in again.tasks] == [2]
    stale = await ack(node, first.tasks)
    assert stale.errors[0].error.reason == 20


async def test_a_repeated_put_has_one_effect(node):
    await create(node)
    request = pb.PutTasksRequest(
        request_id="r1", tube="emails", tasks=[task_pb2.TaskSpec(headers={"a": b"1", "b": b"2"})]
    )
    first = await node.tasks.PutTasks(request)
    again = await node.tasks.PutTasks(request)
    assert list(first.task_ids) == list(again.task_ids)
    assert len((await take(node)).tasks) == 1


async def test_a_repeated_take_gets_the_same_leases(node):
    await create(node)
    await put(node, b"1", b"2")
    first = await take(node, tasks_max=1, request_id="t1")
    again = await take(node, tasks_max=1, request_id="t1")
    assert first.tasks[0].token == again.tasks[0].token
    assert len((await take(node)).tasks) == 1


async def test_large_tasks_fit_into_answers_that_any_client_accepts(node):
    await create(node)
    for _ in range(16):
        await put(node, bytes(256 * 1024), headers={"trace": bytes(1024)})
    first, second = await take(node), await take(node)
    assert len(first.tasks) + len(second.tasks) == 16
    assert first.ByteSize() < GRPC_BYTES_MAX


async def test_a_request_id_of_another_request_is_refused(node):
    await create(node)
    await node.tasks.PutTasks(
        pb.PutTasksRequest(request_id="r", tube="emails", tasks=[task_pb2.TaskSpec(payload=b"1")])
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.PutTasks(
            pb.PutTasksRequest(request_id="r", tube="emails", tasks=[task_pb2.TaskSpec()])
        )
    assert reason_of(caught.value) == "REQUEST_ID_REUSED"


async def test_released_buried_and_kicked_tasks_are_taken_again(node):
    await create(node)
    await put(node, b"x", b"y")
    one, two = (await take(node)).tasks
    settlements = [
        pb.Settlement(tokens=[one.token], release=pb.Settlement.Release(uncounted=True)),
        pb.Settlement(tokens=[two.token], bury=pb.Settlement.Bury()),
    ]
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=settlements))
    kicked = await node.tasks.KickTasks(pb.KickTasksRequest(tube="emails"))
    assert kicked.count == 1
    tasks = (await take(node)).tasks
    assert [(task.id, task.attempt) for task in tasks] == [(1, 1), (2, 2)]


async def test_a_touch_extends_a_lease(node):
    await create(node)
    await put(node, b"x", ttr_ms=60_000)
    (task,) = (await take(node)).tasks
    touch = pb.Settlement(tokens=[task.token], touch=pb.Settlement.Touch(increment_ms=5_000))
    answer = await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[touch]))
    assert answer.touched[0].lease_until_ms == task.lease_until_ms + 5_000


async def test_tasks_are_listed_in_pages_by_state(node):
    await create(node)
    await put(node, *[b"p" * 10] * 5)
    await take(node, tasks_max=1)
    request = pb.ListTasksRequest(tube="emails", filter="state = READY", page_size=3)
    first = await node.tasks.ListTasks(request)
    request.page_token = first.next_page_token
    second = await node.tasks.ListTasks(request)
    assert [task.id for task in (*first.tasks, *second.tasks)] == [2, 3, 4, 5]
    assert not second.next_page_token


async def test_selected_tasks_are_shown_without_the_holders_session_id(node):
    await create(node)
    await put(node, b"x", b"y")
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
    session_id = opened.session.session_id
    await take(node, tasks_max=1, session_id=session_id)
    selector = task_pb2.TaskSelector(ids=[2, 9, 1])
    answer = await node.tasks.GetTasks(
        pb.GetTasksRequest(tube="emails", selector=selector, payload_omit=True)
    )
    assert [task.id for task in answer.tasks] == [2, 1]
    assert [(error.item, error.error.reason) for error in answer.errors] == [(1, 2)]
    assert [task.spec.payload for task in answer.tasks] == [b"", b""]
    assert answer.tasks[1].session_id == session_id[:8]


async def test_tasks_are_deleted_and_buried_by_id(node):
    await create(node)
    await put(node, b"1", b"2")
    buried = await node.tasks.BuryTasks(
        pb.BuryTasksRequest(tube="emails", selector=task_pb2.TaskSelector(ids=[1]))
    )
    deleted = await node.tasks.DeleteTasks(
        pb.DeleteTasksRequest(tube="emails", selector=task_pb2.TaskSelector(ids=[1, 2, 3]))
    )
    assert (buried.count, deleted.count) == (1, 2)
    assert [error.item for error in deleted.errors] == [2]


async def test_a_closed_session_releases_its_tasks(node):
    await create(node)
    await put(node, b"x")
    opened = await node.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(name="worker", ttr_ms=30_000)
    )
    session_id = opened.session.session_id
    await take(node, session_id=session_id)
    listed = await node.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
    assert [(one.session_id, one.taken) for one in listed.sessions] == [(session_id[:8], 1)]
    kept = await node.sessions.KeepSessions(
        session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
    )
    assert kept.sessions[0].expires_ms > 0
    closed = await node.sessions.CloseSession(
        session_service_pb2.CloseSessionRequest(session_id=session_id, uncounted=True)
    )
    assert closed.released == 1
    assert len((await take(node)).tasks) == 1


async def test_tubes_are_listed_truncated_and_dropped(node):
    for name in ("b", "a", "c.1"):
        await create(node, name)
    await put(node, b"x", tube="a")
    await put(node, b"y", tube="b")
    listed = await node.tubes.ListTubes(tube_service_pb2.ListTubesRequest(page_size=2))
    assert [tube.name for tube in listed.tubes] == ["a", "b"]
    rest = await node.tubes.ListTubes(
        tube_service_pb2.ListTubesRequest(page_token=listed.next_page_token)
    )
    assert [tube.name for tube in rest.tubes] == ["c.1"]
    truncated = await node.tubes.TruncateTube(tube_service_pb2.TruncateTubeRequest(name="a"))
    dropped = await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="b"))
    assert (truncated.tasks, dropped.tasks) == (1, 1)


async def test_a_tube_with_waiting_consumers_is_dropped_only_by_force(node):
    await create(node)
    waiting = asyncio.ensure_future(take(node, wait_ms=5_000))
    await node.waiting(1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails"))
    assert reason_of(caught.value) == "TUBE_BUSY"
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails", force=True))
    waiting.cancel()


async def test_release_all_releases_the_tasks_of_every_holder(node):
    await create(node)
    await put(node, b"x")
    await take(node)
    released = await node.tubes.ReleaseAll(tube_service_pb2.ReleaseAllRequest(name="emails"))
    assert released.tasks == 1
    assert len((await take(node)).tasks) == 1


async def test_the_first_put_creates_its_tube_if_configured(tmp_path):
    async with running(config_in(tmp_path, auto_create_tubes=True)) as node:
        waiting = asyncio.ensure_future(take(node, tube="fresh", wait_ms=5_000))
        await node.waiting_anywhere(1)
        await put(node, b"x", tube="fresh")
        assert len((await waiting).tasks) == 1


async def test_puts_are_refused_while_disk_space_is_low_and_acks_are_not(node):
    await create(node)
    await put(node, b"x")
    node.server.components.disk.low_bytes = 2**62
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await put(node, b"y")
    assert reason_of(caught.value) == "DISK_LOW"
    putting = pb.PutTasksRequest(tube="emails", tasks=[task_pb2.TaskSpec(payload=b"y")])
    batch = pb.ExecuteBatchRequest(operations=[pb.BatchOperation(put=putting)])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.ExecuteBatch(batch)
    assert reason_of(caught.value) == "DISK_LOW"
    selector = task_pb2.TaskSelector(ids=[1])
    larger = task_pb2.TaskUpdate(payload=b"larger")
    update = pb.UpdateTasksRequest(tube="emails", selector=selector, update=larger)
    batch = pb.ExecuteBatchRequest(operations=[pb.BatchOperation(update=update)])
    kick = pb.KickTasksRequest(tube="emails", selector=selector, update=larger)
    group = group_service_pb2.CreateGroupRequest(group=group_service_pb2.Group(name="g"))
    for call in (
        node.tasks.UpdateTasks(update),
        node.tasks.KickTasks(kick),
        node.tasks.ExecuteBatch(batch),
        group_service_pb2_grpc.GroupServiceStub(node.channel).CreateGroup(group),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "DISK_LOW"
    sooner = task_pb2.TaskUpdate(priority=-1)
    update = pb.UpdateTasksRequest(tube="emails", selector=selector, update=sooner)
    assert (await node.tasks.UpdateTasks(update)).count == 1
    taken = await take(node)
    assert not (await ack(node, taken.tasks)).errors


async def test_a_put_that_waits_for_capacity_is_refused_when_disk_space_gets_low(node):
    options = tube_service_pb2.TubeOptions(capacity_tasks=1)
    tube = tube_service_pb2.Tube(
        name="emails", kind=tube_service_pb2.Tube.LIMFIFOTTL, options=options
    )
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    await put(node, b"1")
    request = pb.PutTasksRequest(
        tube="emails", tasks=[task_pb2.TaskSpec(payload=b"2")], room_wait_ms=60_000
    )
    waiting = asyncio.ensure_future(node.tasks.PutTasks(request))
    await turns_until(lambda: node.server.components.capacity_waiters.has_waiting("emails"))
    node.server.components.disk.low_bytes = 2**62
    await ack(node, (await take(node)).tasks)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert reason_of(caught.value) == "DISK_LOW"


async def test_too_many_waiting_commands_are_refused(tmp_path):
    async with running(config_in(tmp_path, pending_commands_max=1, entry_commands_max=1)) as node:
        await create(node)
        may_write = threading.Event()
        node.server.node._worker.submit(may_write.wait, lambda _: None)
        calls = [asyncio.ensure_future(put(node, b"x")) for _ in range(50)]
        await turns_until(lambda: any(call.done() for call in calls))
        may_write.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refusals = {reason_of(one) for one in answers if isinstance(one, grpc.aio.AioRpcError)}
        assert refusals == {"OVERLOADED"}


async def test_concurrent_puts_share_entries(node):
    await create(node)
    before = node.queue.applied_index
    await asyncio.gather(*(put(node, b"x") for _ in range(100)))
    assert node.queue.applied_index - before < 100


async def test_the_feed_contains_every_transition_once(node):
    await create(node)
    await put(node, *[b"x"] * 20)
    taken = await take(node, tasks_max=20)
    await ack(node, taken.tasks)
    described = await node.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
    assert [node.leader for node in described.nodes] == [True]
    kinds: list[int] = []
    for part in described.partitions:
        request = feed_service_pb2.ReadChangesRequest(
            feed_id=described.feed_id, partition=part.partition, to_seq=part.high_seq
        )
        seqs = []
        async for chunk in node.feed.ReadChanges(request):
            seqs += [event.seq for event in chunk.events]
            kinds += [event.kind for event in chunk.events]
        assert seqs == list(range(part.high_seq))
    assert sorted(kinds) == [1] * 20 + [2] * 20 + [3] * 20


async def test_columns_contain_the_same_events_as_messages(node):
    await create(node)
    await put(node, *[b"x"] * 50, type="mail")
    described = await node.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
    part = max(described.partitions, key=lambda one: one.high_seq)
    request = feed_service_pb2.ReadChangesRequest(partition=part.partition, to_seq=part.high_seq)
    messages = [chunk async for chunk in node.feed.ReadChanges(request)]
    request.encoding = feed_service_pb2.ReadChangesRequest.COLUMNS
    columns = [chunk async for chunk in node.feed.ReadChanges(request)]
    assert sum(chunk.rows for chunk in columns) == part.high_seq
    ids = b"".join(chunk.columns.task_id for chunk in columns)
    events = [event for chunk in messages for event in chunk.events]
    assert ids == b"".join(event.task_id.to_bytes(8, "little") for event in events)
    assert {event.type for event in events} == {"mail"}


async def test_a_watch_of_the_feed_ends_with_new_events(node):
    await create(node)
    described = await node.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
    known = {part.partition: part.high_seq for part in described.partitions}
    cursor = feed_service_pb2.FeedCursor(feed_id=described.feed_id, next_seq=known)
    watching = node.feed.WatchFeed(
        feed_service_pb2.WatchFeedRequest(cursor=cursor, wait_ms=5_000), timeout=10
    )
    await put(node, b"x")
    answer = await watching
    assert sum(part.high_seq for part in answer.partitions) == sum(known.values()) + 1


async def test_a_read_without_an_end_gets_later_changes(node):
    await create(node)
    await put(node, b"x")
    described = await node.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
    part = max(described.partitions, key=lambda one: one.high_seq)
    reading = node.feed.ReadChanges(
        feed_service_pb2.ReadChangesRequest(partition=part.partition), timeout=10
    )
    first = await reading.read()
    assert first.events[0].kind == feed_service_pb2.ChangeEvent.PUT
    await take(node)
    second = await reading.read()
    assert second.events[0].kind == feed_service_pb2.ChangeEvent.TAKE
    reading.cancel()


async def test_old_events_are_trimmed_and_readers_of_them_get_an_error(tmp_path):
    async with running(config_in(tmp_path, feed_bytes_max=1 << 20, feed_partitions=1)) as node:
        await create(node)
        for _ in range(3):
            await put_many(node, 10_000)
            node.server.machine.collect()
        await node.server.components.housekeeping.trim_feed()
        (part,) = node.queue.feed.views()
        assert 0 < part.low_seq < part.high_seq
        reading = node.feed.ReadChanges(feed_service_pb2.ReadChangesRequest())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reading.read()
        assert reason_of(caught.value) == "CURSOR_TRIMMED"
        request = feed_service_pb2.ReadChangesRequest(
            from_seq=part.low_seq,
            to_seq=part.high_seq,
            encoding=feed_service_pb2.ReadChangesRequest.COLUMNS,
            chunk_bytes_max=1 << 16,
        )
        at = part.low_seq
        async for chunk in node.feed.ReadChanges(request):
            assert chunk.from_seq == at
            assert chunk.ByteSize() < 1 << 17
            at = chunk.next_seq
        assert at == part.high_seq
