"""Temporary tubes of a node behave like replicated tubes, without log entries."""

import asyncio

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
from taskraft_service.queue.entities.id_layout import (
    SEQUENCE_BITS,
    SEQUENCE_RESERVE,
    TEMPORARY_TASKS,
)
from tests.service.conftest import ack, config_in, create, put, reason_of, running, take
from tests.service.leader.temporary.calls import (
    Options,
    acked,
    chosen,
    counts,
    listed,
    payloads,
    release,
    settle,
    take_from,
    temporary,
    violations,
)
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

Task = task_pb2.Task


@pytest.fixture
async def scratch(node):
    made = await temporary(node)
    assert made.options.durability == Options.TEMPORARY
    return node


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def session(node, ttr_ms=60_000):
    request = session_service_pb2.OpenSessionRequest(ttr_ms=ttr_ms)
    return (await node.sessions.OpenSession(request)).session.session_id


async def test_temporary_tasks_cause_no_log_entries(scratch):
    before = scratch.server.node.status().last
    put_ids = (await put(scratch, b"a", b"b", tube="scratch")).task_ids
    taken = (await take(scratch, "scratch")).tasks
    assert [task.id for task in taken] == list(put_ids)
    assert payloads(taken) == [b"a", b"b"]
    assert not (await ack(scratch, taken[:1])).errors
    assert not (await settle(scratch, release(taken[1].token))).errors
    assert payloads(await listed(scratch)) == [b"b"]
    assert scratch.server.node.status().last == before
    assert min(put_ids) > TEMPORARY_TASKS
    assert min(task.token for task in taken) > TEMPORARY_TASKS


async def test_the_tube_is_shown_as_temporary_and_its_tasks_are_not_in_the_feed(scratch):
    await put(scratch, b"a", tube="scratch")
    await take(scratch, "scratch")
    answer = await scratch.tubes.ListTubes(tube_service_pb2.ListTubesRequest())
    assert [tube.options.durability for tube in answer.tubes] == [Options.TEMPORARY]
    assert sum(view.high_seq for view in scratch.queue.feed.views()) == 0
    described = await scratch.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())
    assert {part.high_seq for part in described.partitions} == {0}


async def test_selected_tasks_are_buried_kicked_updated_and_deleted(scratch):
    ids = (await put(scratch, b"a", b"b", b"c", tube="scratch")).task_ids
    bury = pb.BuryTasksRequest(tube="scratch", selector=chosen(ids[0], 1))
    answer = await scratch.tasks.BuryTasks(bury)
    assert (answer.count, [error.item for error in answer.errors]) == (1, [1])
    update = pb.UpdateTasksRequest(
        tube="scratch", selector=chosen(ids[1]), update=task_pb2.TaskUpdate(payload=b"new")
    )
    assert (await scratch.tasks.UpdateTasks(update)).count == 1
    delete = pb.DeleteTasksRequest(tube="scratch", selector=chosen(ids[2]))
    assert (await scratch.tasks.DeleteTasks(delete)).count == 1
    shown = await counts(scratch)
    assert (shown.ready, shown.buried, shown.total) == (1, 1, 2)
    assert (await scratch.tasks.KickTasks(pb.KickTasksRequest(tube="scratch", count=5))).count == 1
    get = pb.GetTasksRequest(tube="scratch", selector=chosen(*ids))
    found = await scratch.tasks.GetTasks(get)
    assert payloads(found.tasks) == [b"a", b"new"]
    assert [error.item for error in found.errors] == [2]


async def test_a_page_of_a_list_continues_after_the_previous_page(scratch):
    await put(scratch, *[b"%d" % n for n in range(5)], tube="scratch")
    request = pb.ListTasksRequest(tube="scratch", page_size=3)
    first = await scratch.tasks.ListTasks(request)
    request.page_token = first.next_page_token
    second = await scratch.tasks.ListTasks(request)
    assert payloads([*first.tasks, *second.tasks]) == [b"0", b"1", b"2", b"3", b"4"]
    assert not second.next_page_token


async def test_deadlines_fire_without_traffic(scratch):
    """Each call waits for the effect of the previous deadline, so a slow machine passes too."""
    at_once = task_pb2.RetryPolicy()
    await put(scratch, b"late", tube="scratch", delay_ms=20, retry=at_once)
    (late,) = await take_from(scratch, "scratch", wait_ms=9_000, ttr_ms=10)
    (again,) = await take_from(scratch, "scratch", wait_ms=9_000, ttr_ms=60_000)
    assert (again.id, again.attempt) == (late.id, 2)
    short = await put(scratch, b"short", tube="scratch", ttl_ms=5)
    await scratch.tasks.WaitTasks(
        pb.WaitTasksRequest(tube="scratch", selector=chosen(*short.task_ids), wait_ms=9_000)
    )
    told = await scratch.tubes.GetStatistics(tube_service_pb2.GetStatisticsRequest())
    assert (told.total.calls.delay, told.total.calls.ttr, told.total.calls.ttl) == (1, 1, 1)


async def test_waiting_consumers_are_served_as_soon_as_a_task_is_put(scratch):
    waiting = [asyncio.ensure_future(take(scratch, "scratch", 1, wait_ms=9_000)) for _ in range(2)]
    await scratch.waiting(2, "scratch")
    await put(scratch, b"a", b"b", tube="scratch")
    answers = await asyncio.gather(*waiting)
    assert sorted(payloads(task for answer in answers for task in answer.tasks)) == [b"a", b"b"]
    (first,) = answers[0].tasks
    another = asyncio.ensure_future(take(scratch, "scratch", 1, wait_ms=9_000))
    await scratch.waiting(1, "scratch")
    await settle(scratch, release(first.token))
    assert [task.attempt for task in (await another).tasks] == [2]


async def test_a_stream_takes_and_settles_tasks_of_both_kinds_of_tubes(scratch):
    await create(scratch)
    stream = scratch.tasks.Subscribe(timeout=20)
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="*")], session_ttr_ms=60_000)
    await stream.write(
        pb.SubscribeRequest(open=opened, credit=pb.SubscribeRequest.Credit(tasks=10))
    )
    session_id = (await stream.read()).opened.session_id
    await put(scratch, b"kept")
    await put(scratch, b"fleeting", tube="scratch")
    tasks = []
    while len(tasks) < 2:
        tasks += (await stream.read()).tasks
    assert {task.tube for task in tasks} == {"emails", "scratch"}
    assert {task.session_id for task in tasks} == {session_id}
    tokens = [task.token for task in tasks]
    await stream.write(pb.SubscribeRequest(settlements=[acked(*tokens, 7)], request_id="s"))
    (settled,) = (await stream.read()).settled
    assert [error.item for error in settled.errors] == [2]
    assert (await counts(scratch)).total == (await counts(scratch, "emails")).total == 0
    stream.cancel()


async def test_a_put_waits_for_the_outcome_of_its_task(scratch):
    spec = task_pb2.TaskSpec(payload=b"a")
    request = pb.PutTasksRequest(tube="scratch", tasks=[spec], outcome_wait_ms=9_000)
    putting = asyncio.ensure_future(scratch.tasks.PutTasks(request))
    (task,) = (await take(scratch, "scratch", 1, wait_ms=9_000)).tasks
    wish = pb.WaitTasksRequest(tube="scratch", selector=chosen(task.id), wait_ms=9_000)
    waiting = asyncio.ensure_future(scratch.tasks.WaitTasks(wish))
    await settle(scratch, acked(task.token, result=b"42"))
    assert (await putting).outcomes[0].result == b"42"
    answer = await waiting
    assert [one.outcome for one in answer.tasks] in ([Task.PROCESSED], [])
    assert len(scratch.server.components.outcomes) == 0


async def test_puts_wait_in_order_for_capacity_of_a_full_tube(node):
    await temporary(node, capacity_tasks=1)
    await put(node, b"a", tube="scratch")
    spec = task_pb2.TaskSpec(payload=b"b")
    request = pb.PutTasksRequest(tube="scratch", tasks=[spec], room_wait_ms=9_000)
    putting = asyncio.ensure_future(node.tasks.PutTasks(request))
    taken = (await take(node, "scratch")).tasks
    await ack(node, taken)
    assert len((await putting).task_ids) == 1


# ------------------------------------------------------------------------------ sessions


async def test_the_end_of_a_session_ends_its_leases_on_both_sides(scratch):
    await create(scratch)
    await put(scratch, b"a")
    await put(scratch, b"b", tube="scratch")
    session_id = await session(scratch)
    for tube in ("emails", "scratch"):
        assert len(await take_from(scratch, tube, session_id=session_id)) == 1
    request = session_service_pb2.ListSessionsRequest()
    (shown,) = (await scratch.sessions.ListSessions(request)).sessions
    assert shown.taken == 2
    close = session_service_pb2.CloseSessionRequest(session_id=session_id, uncounted=True)
    assert (await scratch.sessions.CloseSession(close)).released == 2
    (again,) = await take_from(scratch, "scratch")
    assert again.attempt == 1


async def test_an_expired_session_ends_its_leases(scratch):
    await put(scratch, b"a", tube="scratch")
    session_id = await session(scratch, ttr_ms=1_000)
    await take_from(scratch, "scratch", session_id=session_id)
    (again,) = await take_from(scratch, "scratch", wait_ms=9_000)
    assert again.attempt == 2
    error = await refused(take_from(scratch, "scratch", session_id=session_id))
    assert reason_of(error) == "SESSION_NOT_FOUND"


async def test_a_resumed_stream_gets_the_leases_and_cancel_requests_of_its_session(scratch):
    await put(scratch, b"a", tube="scratch")
    session_id = await session(scratch)
    (task,) = await take_from(scratch, "scratch", session_id=session_id)
    cancel = pb.CancelTasksRequest(tube="scratch", selector=chosen(task.id))
    assert (await scratch.tasks.CancelTasks(cancel)).asked == 1
    keep = session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
    assert list((await scratch.sessions.KeepSessions(keep)).cancel_tokens) == [task.token]
    stream = scratch.tasks.Subscribe(timeout=20)
    opened = pb.SubscribeRequest.Open(
        sources=[pb.TakeSource(tube="scratch")], session_id=session_id
    )
    await stream.write(pb.SubscribeRequest(open=opened))
    assert [held.token for held in (await stream.read()).opened.held] == [task.token]
    stream.cancel()


# ------------------------------------------------------------------------------ both sides


async def test_a_take_from_both_sides_finds_the_tasks_of_either(scratch):
    await create(scratch)
    await put(scratch, b"kept")
    await put(scratch, b"fleeting", tube="scratch")
    found = [await take_from(scratch, "emails", "scratch") for _ in range(3)]
    assert sorted(payloads(tasks)[0] for tasks in found[:2]) == [b"fleeting", b"kept"]
    assert found[2] == []


@pytest.mark.parametrize("tube", ["emails", "scratch"])
async def test_a_repeated_take_from_both_sides_gets_the_same_leases(scratch, tube):
    await create(scratch)
    await put(scratch, b"a", tube=tube)
    first = await take_from(scratch, "emails", "scratch", request_id="r")
    for name in ("emails", "scratch"):
        await put(scratch, b"more", tube=name)
    again = await take_from(scratch, "emails", "scratch", request_id="r")
    assert [task.token for task in again] == [task.token for task in first]


async def test_one_settle_covers_replicated_and_temporary_tubes(scratch):
    await create(scratch)
    await put(scratch, b"a", b"b")
    await put(scratch, b"c", b"d", tube="scratch")
    kept, fleeting = await take_from(scratch, "emails"), await take_from(scratch, "scratch")
    tokens = [fleeting[0].token, kept[0].token, 5_000, TEMPORARY_TASKS + 1]
    touch = pb.Settlement(
        tokens=[fleeting[1].token, kept[1].token],
        touch=pb.Settlement.Touch(increment_ms=1_000),
    )
    answer = await settle(scratch, acked(*tokens), touch)
    assert [(one.item, one.error.reason) for one in answer.errors] == [(2, 20), (3, 20)]
    assert [lease.token for lease in answer.touched] == list(touch.tokens)
    error = await refused(settle(scratch, acked(kept[1].token, fleeting[1].token), atomic=True))
    assert (reason_of(error), violations(error)) == ("INVALID_FIELD", ["settlements"])
    assert (await counts(scratch)).taken == (await counts(scratch, "emails")).taken == 1


async def test_tasks_do_not_move_between_the_two_sides(scratch):
    await create(scratch)
    await put(scratch, b"a")
    await put(scratch, b"b", tube="scratch")
    (kept,), (fleeting,) = await take_from(scratch, "emails"), await take_from(scratch, "scratch")
    for token, target in ((kept.token, "scratch"), (fleeting.token, "emails")):
        error = await refused(settle(scratch, release(token, move_to=target)))
        assert violations(error) == ["settlements[0].release.move_to"]
    for source, target in (("emails", "scratch"), ("scratch", "emails")):
        request = pb.MoveTasksRequest(tube=source, move_to=target, selector={"filter": "id > 0"})
        error = await refused(scratch.tasks.MoveTasks(request))
        assert (reason_of(error), violations(error)) == ("INVALID_FIELD", ["move_to"])
    await temporary(scratch, "other")
    assert not (await settle(scratch, release(fleeting.token, move_to="other"))).errors
    assert payloads(await listed(scratch, "other")) == [b"b"]
    request = pb.MoveTasksRequest(tube="other", move_to="scratch", selector={"filter": "id > 0"})
    assert (await scratch.tasks.MoveTasks(request)).count == 1
    assert payloads(await listed(scratch, "scratch")) == [b"b"]


async def test_a_batch_covers_one_side_only(scratch):
    await create(scratch)
    await put(scratch, b"a", tube="scratch")
    (task,) = await take_from(scratch, "scratch")
    settled = pb.SettleTasksRequest(settlements=[acked(task.token)])
    follow = [task_pb2.TaskSpec(payload=b"follows")]

    def batch(tube):
        return pb.ExecuteBatchRequest(
            operations=[
                pb.BatchOperation(settle=settled),
                pb.BatchOperation(put=pb.PutTasksRequest(tube=tube, tasks=follow)),
            ]
        )

    error = await refused(scratch.tasks.ExecuteBatch(batch("emails")))
    assert violations(error) == ["operations[0]"]
    await scratch.tasks.ExecuteBatch(batch("scratch"))
    assert payloads(await listed(scratch)) == [b"follows"]


async def test_a_temporary_tube_refuses_tasks_of_groups(scratch):
    groups = group_service_pb2_grpc.GroupServiceStub(scratch.channel)
    group = group_service_pb2.Group(name="g")
    await groups.CreateGroup(group_service_pb2.CreateGroupRequest(group=group))
    error = await refused(put(scratch, b"a", b"b", tube="scratch", group="g"))
    assert violations(error) == ["tasks[0].group", "tasks[1].group"]


# ------------------------------------------------------------------------------ definitions


async def test_options_change_while_the_tube_is_in_use(scratch):
    async def update(**options):
        request = tube_service_pb2.UpdateTubeRequest(
            name="scratch", options=Options(**options), update_mask={"paths": list(options)}
        )
        return await scratch.tubes.UpdateTube(request)

    await put(scratch, b"a", tube="scratch")
    await update(take_paused=True, capacity_tasks=1)
    assert await take_from(scratch, "scratch") == []
    (refusal,) = (await put(scratch, b"b", tube="scratch")).errors
    assert refusal.error.metadata["limit"] == "capacity_tasks"
    await update(take_paused=False)
    assert len(await take_from(scratch, "scratch")) == 1
    error = await refused(update(durability=Options.REPLICATED))
    assert violations(error) == ["options.durability"]


async def test_a_drop_counts_its_tasks_and_is_refused_while_tasks_are_taken(scratch):
    await put(scratch, b"a", b"b", tube="scratch")
    (taken,) = await take_from(scratch, "scratch", tasks_max=1)
    drop = tube_service_pb2.DropTubeRequest(name="scratch")
    assert reason_of(await refused(scratch.tubes.DropTube(drop))) == "TUBE_BUSY"
    truncate = tube_service_pb2.TruncateTubeRequest(name="scratch")
    assert (await scratch.tubes.TruncateTube(truncate)).tasks == 2
    assert [one.item for one in (await ack(scratch, [taken])).errors] == [0]
    await put(scratch, b"c", tube="scratch")
    drop.force = True
    assert (await scratch.tubes.DropTube(drop)).tasks == 1
    error = await refused(put(scratch, b"d", tube="scratch"))
    assert reason_of(error) == "TUBE_NOT_FOUND"
    # The new tube has the same name and is not temporary: its tasks are in the log.
    await create(scratch, "scratch")
    assert list((await put(scratch, b"e", tube="scratch")).task_ids) == [1]
    assert scratch.queue.get_tasks("scratch", [1])[0] is not None


async def test_a_repeated_drop_keeps_the_taken_tasks_of_a_new_tube(scratch):
    drop = tube_service_pb2.DropTubeRequest(name="scratch", request_id="r")
    await scratch.tubes.DropTube(drop)
    await temporary(scratch)
    await put(scratch, b"a", tube="scratch")
    (taken,) = await take_from(scratch, "scratch")
    await scratch.tubes.DropTube(drop)
    assert not (await ack(scratch, [taken])).errors
    drop.request_id = "another"
    await put(scratch, b"b", tube="scratch")
    await take_from(scratch, "scratch")
    assert reason_of(await refused(scratch.tubes.DropTube(drop))) == "TUBE_BUSY"


async def test_repeated_requests_have_one_effect(scratch):
    spec = task_pb2.TaskSpec(payload=b"a")
    request = pb.PutTasksRequest(tube="scratch", tasks=[spec], request_id="p")
    first = await scratch.tasks.PutTasks(request)
    assert (await scratch.tasks.PutTasks(request)).task_ids == first.task_ids
    assert (await counts(scratch)).total == 1


# ------------------------------------------------------------------------------ memory


async def test_puts_beyond_the_memory_limit_are_refused_until_memory_is_free(tmp_path):
    config = config_in(tmp_path, temporary_bytes_max=256 * 1024, payload_bytes_max=256 * 1024)
    async with running(config) as node:
        await temporary(node)
        stored = 0

        async def fill():
            nonlocal stored
            while stored < 100:
                stored += len((await put(node, *[b"x" * 9_000] * 4, tube="scratch")).task_ids)

        error = await refused(fill())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert reason_of(error) == "LIMIT_REACHED"
        assert 20 <= stored <= 28
        assert node.server.components.temporary.memory_bytes <= 256 * 1024
        # Consumers still work, and free memory.
        taken = await take_from(node, "scratch", tasks_max=4)
        await settle(node, acked(*[task.token for task in taken], result=b"r" * 100))
        assert len((await put(node, b"x" * 9_000, tube="scratch")).task_ids) == 1
        await put(node, b"elsewhere", tube=(await create(node)).tube.name)


async def test_a_leader_that_has_used_up_its_numbers_leads_again_in_a_later_term(scratch):
    components = scratch.server.components
    leadership = components.leadership
    await components.housekeeping.renew_term(leadership)
    term = leadership.lead_term
    assert term, "the numbers are not used up yet"
    await put(scratch, b"a", tube="scratch")
    (first,) = (await take(scratch, "scratch")).tasks
    state = components.temporary._memory.queue._state
    state.token += (1 << SEQUENCE_BITS) - SEQUENCE_RESERVE
    await components.housekeeping.renew_term(leadership)
    await turns_until(lambda: leadership.serves)
    assert leadership.lead_term > term
    await put(scratch, b"b", tube="scratch")
    (second,) = (await take(scratch, "scratch")).tasks
    assert second.token >> SEQUENCE_BITS == (first.token >> SEQUENCE_BITS) + (
        leadership.lead_term - term
    )
