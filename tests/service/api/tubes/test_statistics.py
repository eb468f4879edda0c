"""Statistics of the service: counts, transitions, ages, lists, version."""

import asyncio
import sys

import pytest

from taskraft.v1 import (
    cluster_service_pb2,
    session_service_pb2,
    task_pb2,
    tube_service_pb2,
)
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import AnonymousCaller
from taskraft_service.api.cluster.service import server_version
from taskraft_service.process.metrics.tubes import TubeCollector
from taskraft_service.process.services import servicers
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.limits import OBJECT_LIMITS, Limits
from tests.service.conftest import ack, create, put, take

pytestmark = pytest.mark.real_time

State = task_pb2.Task


async def statistics(node, *tubes):
    request = tube_service_pb2.GetStatisticsRequest(tubes=tubes, transitions=True)
    return await node.tubes.GetStatistics(request)


def moves(counted):
    return {(move.from_state, move.to_state): move.count for move in counted.transitions}


async def test_transitions_are_counted_by_tube_and_in_total(node):
    await create(node, "mail")
    await create(node, "fax")
    await put(node, b"1", b"2", tube="mail")
    await put(node, b"3", tube="fax", delay_ms=60_000)
    await ack(node, (await take(node, "mail", tasks_max=1)).tasks)
    answer = await statistics(node)
    fax, mail = answer.tubes
    void = State.STATE_UNSPECIFIED
    assert moves(mail) == {
        (void, State.READY): 2,
        (State.READY, State.TAKEN): 1,
        (State.TAKEN, void): 1,
    }
    assert moves(fax) == {(void, State.DELAYED): 1}
    assert moves(answer.total) == {**moves(mail), **moves(fax)}
    assert (answer.total.tasks.total, answer.total.calls.put, answer.total.calls.finished) == (
        2,
        3,
        1,
    )


async def test_the_oldest_ready_task_is_shown_by_its_age(node):
    await create(node, "mail")
    await create(node, "fax")
    await put(node, b"1", tube="mail")
    await put(node, b"2", tube="mail")
    (first, second) = (await listed(node, "mail")).tasks
    answer = await statistics(node, "mail", "fax")
    by_tube = {one.tube: one.oldest_ready_ms for one in answer.tubes}
    assert by_tube == {"mail": first.since_ms, "fax": 0}
    assert answer.total.oldest_ready_ms == first.since_ms <= second.since_ms <= answer.now_ms
    await ack(node, (await take(node, "mail")).tasks)
    assert (await statistics(node)).total.oldest_ready_ms == 0


async def test_ages_grow_while_no_entry_is_applied(node):
    """The clock of the queue stands still while no entry is applied."""
    hour_ms = 3_600_000
    await create(node, "mail")
    await put(node, b"1", tube="mail")
    assert not (await listed(node, "mail", filter="state_age > 59m")).tasks
    applied = node.queue.applied_index
    clock = node.server.components.clock.cluster
    clock.lead(clock.term, node.queue.now_ms + hour_ms)
    answer = await statistics(node, "mail")
    assert answer.now_ms - answer.tubes[0].oldest_ready_ms >= hour_ms
    page = await listed(node, "mail", filter="state_age > 59m")
    assert page.now_ms - page.tasks[0].since_ms >= hour_ms
    get = pb.GetTasksRequest(tube="mail", selector=task_pb2.TaskSelector(ids=[1]))
    shown = await node.tasks.GetTasks(get)
    assert shown.now_ms - shown.tasks[0].since_ms >= hour_ms
    components = node.server.components
    families = TubeCollector(components.queues, components.clock.now_ms).slices()
    ages = {
        sample.labels["tube"]: sample.value
        for family in families
        if family is not None
        for sample in family.samples
        if sample.name == "taskraft_oldest_ready_age_seconds"
    }
    assert ages["mail"] >= hour_ms / 1000
    assert node.queue.applied_index == applied


async def listed(node, tube, **fields):
    return await node.tasks.ListTasks(pb.ListTasksRequest(tube=tube, **fields))


async def test_taken_tasks_and_their_holders_are_listed(node):
    await create(node)
    await put(node, b"1", b"2")
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest(name="anna"))
    session_id = opened.session.session_id
    await take(node, tasks_max=1, session_id=session_id)
    (task,) = (await listed(node, "emails", filter="state = TAKEN")).tasks
    assert session_id.startswith(task.session_id)
    assert task.session_id != session_id, "the whole id would let its reader act for the session"
    sessions = await node.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
    assert [(one.name, one.taken) for one in sessions.sessions] == [("anna", 1)]


async def test_payloads_can_be_left_out(node):
    await create(node)
    await put(node, b"large", content_type="text/plain")
    (shown,) = (await listed(node, "emails", payload_omit=True)).tasks
    (taken,) = (await take(node, payload_omit=True)).tasks
    for task in (shown, taken):
        assert (task.spec.payload, task.spec.content_type) == (b"", "text/plain")


async def test_a_node_shows_its_version_and_limits(node):
    info = await node.cluster.GetServerInfo(cluster_service_pb2.GetServerInfoRequest())
    assert info.version == server_version()
    assert info.limits["take_tasks_max"] == 1_000
    limits = Limits()
    assert info.limits["waiting_steps_share_max"] == 37_500
    assert info.limits["waited_tasks_max"] == 1_000_000
    assert info.limits["waited_tasks_share_max"] == 750_000
    assert (info.limits["calls_max"], info.limits["calls_share_max"]) == (10_000, 7_500)
    assert (info.limits["streams_max"], info.limits["streams_share_max"]) == (20_000, 15_000)
    assert info.limits["connections_share_max"] >= 1
    for name in OBJECT_LIMITS:
        assert info.limits[name] == getattr(limits, name)


async def test_empty_peeks_and_takes_are_counted_and_logged(node):
    await create(node, "mail")
    await create(node, "fax")
    await put(node, b"1", b"2", tube="mail")
    selector = task_pb2.TaskSelector(ids=[1, 2, 99])
    get = pb.GetTasksRequest(tube="mail", selector=selector)
    await node.tasks.GetTasks(get)
    get.payload_omit = True
    await node.tasks.GetTasks(get)
    await take(node, "fax")
    await take(node, "fax", wait_ms=1)
    before = await looks(node)
    assert before == {"mail": (0, 2, 2), "fax": (2, 0, 0), "": (2, 2, 2)}
    await node.server.components.housekeeping.log_calls()
    assert await looks(node) == before, "logged counts are not counted twice"
    (mail,) = node.queue.statistics(["mail"])
    assert mail.calls.noted[CountedOperation.PEEK] == 2
    (again,) = (await statistics(node, "mail")).tubes
    assert again.calls_since_start.peek == again.calls.peek == 2


async def looks(node):
    answer = await statistics(node)
    shown = (*answer.tubes, answer.total)
    return {one.tube: (one.calls.take_timeout, one.calls.peek, one.calls.meta) for one in shown}


async def test_a_moved_task_is_counted_as_crossing_but_not_in_the_total(node):
    await create(node, "mail")
    await create(node, "fax")
    await put(node, b"1", tube="mail")
    (task,) = (await take(node, "mail")).tasks
    release = pb.Settlement.Release(move_to="fax")
    settlement = pb.Settlement(tokens=[task.token], release=release)
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    answer = await statistics(node)
    fax, mail = answer.tubes
    void = State.STATE_UNSPECIFIED
    crossing = [
        (one.tube, move.from_state, move.to_state, move.count)
        for one in (fax, mail, answer.total)
        for move in one.transitions
        if move.crossing
    ]
    assert crossing == [("fax", void, State.READY, 1), ("mail", State.TAKEN, void, 1)]
    assert moves(answer.total) == {
        (void, State.READY): 1,
        (State.READY, State.TAKEN): 1,
        (State.TAKEN, State.READY): 1,
    }


async def test_counts_of_many_tubes_come_in_pages_each_with_the_total(node):
    for name in ("c", "a", "b"):
        await create(node, name)
        await put(node, b"1", tube=name)
    await take(node, "c", wait_ms=1, tasks_max=1)
    await take(node, "a", wait_ms=1, tasks_max=1)
    await take(node, "a", wait_ms=1, tasks_max=1)
    request = tube_service_pb2.GetStatisticsRequest(page_size=2)
    first = await node.tubes.GetStatistics(request)
    request.page_token = first.next_page_token
    last = await node.tubes.GetStatistics(request)
    assert [[one.tube for one in page.tubes] for page in (first, last)] == [["a", "b"], ["c"]]
    assert last.next_page_token == ""
    for page in (first, last):
        assert (page.total.tasks.total, page.total.tasks.taken) == (3, 2)
        assert (page.total.calls.put, page.total.calls.take_timeout) == (3, 1)


async def ordered(node, order, **fields):
    request = tube_service_pb2.GetStatisticsRequest(order_by=order, **fields)
    return await node.tubes.GetStatistics(request)


async def test_tubes_are_ordered_by_rank_and_those_without_such_tasks_are_left_out(node):
    order = tube_service_pb2.GetStatisticsRequest
    for name, tasks in (("a", 1), ("b", 3), ("c", 2), ("d", 0), ("e", 2)):
        await create(node, name)
        if tasks:
            await put(node, *[b"1"] * tasks, tube=name)
    for name, many in (("b", 1), ("c", 2)):
        selector = task_pb2.TaskSelector(ids=range(1, many + 1))
        await node.tasks.BuryTasks(pb.BuryTasksRequest(tube=name, selector=selector))
    options = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    quick = tube_service_pb2.Tube(name="quick", kind=tube_service_pb2.Tube.FIFO, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=quick))
    await put(node, *[b"1"] * 4, tube="quick")

    async def names(by, **fields):
        return [one.tube for one in (await ordered(node, by, **fields)).tubes]

    assert await names(order.READY) == ["quick", "b", "e", "a"]
    assert await names(order.BURIED) == ["c", "b"]
    oldest = await ordered(node, order.OLDEST_READY)
    ages = [one.oldest_ready_ms for one in oldest.tubes]
    assert sorted(one.tube for one in oldest.tubes) == ["a", "b", "e", "quick"]
    assert ages == sorted(ages)
    first = await ordered(node, order.READY, page_size=2, tubes=["a", "b", "e"])
    assert [one.tube for one in first.tubes] == ["b", "e"]
    assert (first.next_page_token, first.tube_count, first.total.tasks.ready) == ("", 3, 5)


async def changed(node, revision, **fields):
    request = tube_service_pb2.GetStatisticsRequest(changed_since_revision=revision, **fields)
    return await node.tubes.GetStatistics(request)


async def test_only_the_tubes_that_changed_after_a_revision_are_listed(node):
    for name in ("a", "b", "c"):
        await create(node, name)
        await put(node, b"1", tube=name)
    node.server.components.machine.write_applied()
    whole = await changed(node, 0)
    assert [one.tube for one in whole.tubes] == ["a", "b", "c"]
    assert not (await changed(node, whole.revision)).tubes
    await put(node, b"2", tube="b")
    for _ in ("in memory", "written"):
        answer = await changed(node, whole.revision)
        assert [(one.tube, one.tasks.ready) for one in answer.tubes] == [("b", 2)]
        assert (answer.tube_count, answer.total.tasks.ready) == (3, 4)
        node.server.components.machine.write_applied()
    assert not (await changed(node, answer.revision)).tubes
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="c", force=True))
    answer = await changed(node, answer.revision)
    assert ([one.tube for one in answer.tubes], answer.tube_count) == ([], 2)


async def test_the_total_includes_temporary_tubes(node):
    await create(node, "mail")
    options = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    quick = tube_service_pb2.Tube(name="quick", kind=tube_service_pb2.Tube.FIFO, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=quick))
    await put(node, b"1", b"2", tube="mail")
    await put(node, b"3", tube="quick")
    await ack(node, (await take(node, "mail", tasks_max=1)).tasks)
    answer = await statistics(node)
    void = State.STATE_UNSPECIFIED
    assert answer.total.tasks.total == 2
    assert answer.total.calls.put == answer.total.calls_since_start.put == 3
    assert moves(answer.total) == {
        (void, State.READY): 3,
        (State.READY, State.TAKEN): 1,
        (State.TAKEN, void): 1,
    }
    oldest = {one.tube: one.oldest_ready_ms for one in answer.tubes}
    assert answer.total.oldest_ready_ms == min(oldest.values()) > 0


async def test_peeks_into_temporary_tubes_are_in_the_total_once(node):
    options = tube_service_pb2.TubeOptions(durability=tube_service_pb2.TubeOptions.TEMPORARY)
    quick = tube_service_pb2.Tube(name="quick", kind=tube_service_pb2.Tube.FIFO, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=quick))
    await create(node, "mail")
    for tube in ("quick", "mail"):
        await take(node, tube, wait_ms=1)
    components = node.server.components
    for _ in ("not told yet", "told"):
        answer = await statistics(node)
        counts = {one.tube: one.calls.take_timeout for one in (*answer.tubes, answer.total)}
        assert counts == {"quick": 1, "mail": 1, "": 2}
        await components.housekeeping.log_calls()
    assert components.unlogged_calls.tubes() == set()


async def test_one_tube_and_the_total_are_read_in_constant_time(node):
    """The test counts instructions of the interpreter, not time."""
    requests = [
        tube_service_pb2.GetStatisticsRequest(tubes=["t0"], transitions=True),
        tube_service_pb2.GetStatisticsRequest(page_size=1, transitions=True),
    ]
    steps = []
    for tubes in (range(3), range(3, 150)):
        await asyncio.gather(*(create(node, f"t{number}") for number in tubes))
        await asyncio.gather(*(put(node, b"1", tube=f"t{number}") for number in tubes))
        for request in requests:
            request.consistency.level = task_pb2.Consistency.LOCAL
            # The first calls fill caches; the following calls are measured.
            steps_of(read(node, request))
        steps.append([steps_of(read(node, request)) for request in requests])
    assert (await statistics(node)).total.tasks.ready == 150
    assert steps[0] == steps[1]


def read(node, request):
    """Return the call of GetStatistics as a coroutine; it never waits."""
    (method,) = (
        method
        for servicer in servicers(node.server.components)
        for method in servicer.unary
        if method.name == "GetStatistics"
    )
    return method.execute(request.SerializeToString(), None, AnonymousCaller(), 0)


def steps_of(call):
    """Return the number of instructions of a call."""
    steps = 0

    def trace(frame, event, _):
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(StopIteration):
            call.send(None)
    finally:
        sys.settrace(before)
    return steps
