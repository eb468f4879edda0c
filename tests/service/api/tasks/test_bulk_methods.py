"""Operations on selected tasks through the API: answers, pages, and notices to holders."""

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import session_service_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.tasks import reads
from tests.service.conftest import create, put, reason_of, take

pytestmark = pytest.mark.real_time

Task = task_pb2.Task
TubeOptions = tube_service_pb2.TubeOptions


def ids(*numbers):
    return task_pb2.TaskSelector(ids=numbers)


def matching(text, **fields):
    return task_pb2.TaskSelector(filter=text, **fields)


async def pages(node, **fields):
    """Return the ids of the tasks of each page."""
    found, token = [], ""
    while True:
        request = pb.ListTasksRequest(tube="emails", page_token=token, **fields)
        answer = await node.tasks.ListTasks(request)
        found.append([task.id for task in answer.tasks])
        token = answer.next_page_token
        if not token:
            return found


async def test_pages_show_the_tasks_of_the_first_call(node):
    await create(node)
    await put(node, *[b"x"] * 5)
    first = await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails", page_size=2))
    assert [task.id for task in first.tasks] == [1, 2]
    await put(node, b"later")
    await node.tasks.DeleteTasks(pb.DeleteTasksRequest(tube="emails", selector=ids(1, 4)))
    token = first.next_page_token
    second = await node.tasks.ListTasks(
        pb.ListTasksRequest(tube="emails", page_size=2, page_token=token)
    )
    assert [task.id for task in second.tasks] == [3, 5]
    assert await pages(node, page_size=3) == [[2, 3, 5], [6]]
    assert await pages(node, page_size=3, order_by="id desc") == [[6, 5, 3], [2]]
    assert await pages(node, filter="id > 2 AND NOT id = 5") == [[3, 6]]


async def test_ready_tasks_are_listed_in_the_order_of_takes(node):
    await create(node)
    for priority in (5, -(2**63), 1, 2**63 - 1, 1):
        await put(node, b"", priority=priority)
    await put(node, b"", position=task_pb2.TaskSpec.FRONT)
    await put(node, b"", delay_ms=60_000)
    assert await pages(node, order_by="taking", page_size=4) == [[6, 2, 3, 5], [1, 4]]
    request = pb.ListTasksRequest(tube="emails", order_by="taking", page_size=2)
    first = await node.tasks.ListTasks(request)
    assert [task.id for task in first.tasks] == [6, 2]
    await put(node, b"later")
    request.page_token, request.page_size = first.next_page_token, 9
    second = await node.tasks.ListTasks(request)
    assert [task.id for task in second.tasks] == [3, 5, 1, 4]
    assert [task.id for task in (await take(node)).tasks] == [6, 2, 8, 3, 5, 1, 4]


async def test_buried_tasks_are_listed_in_kick_order_without_other_tasks(node):
    await create(node)
    await put(node, b"", b"", b"")
    await put(node, b"", b"", priority=-1)
    ids = [1, 3, 4, 5]
    await node.tasks.BuryTasks(pb.BuryTasksRequest(tube="emails", selector={"ids": ids}))
    assert await pages(node, order_by="kicking", page_size=3) == [[4, 5, 1], [3]]
    assert await pages(node, order_by="kicking", filter="id > 3") == [[4, 5]]


async def test_a_page_token_is_valid_for_one_list_only(node):
    await create(node)
    await put(node, b"1", b"2", b"3")
    first = await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails", page_size=1))
    for other in ({"filter": "state = READY"}, {"order_by": "id desc"}, {"order_by": "taking"}):
        request = pb.ListTasksRequest(tube="emails", page_token=first.next_page_token, **other)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.tasks.ListTasks(request)
        assert reason_of(caught.value) == "INVALID_FIELD"


async def test_the_pages_of_a_count_add_up_to_the_tasks_of_the_first_call(node, monkeypatch):
    monkeypatch.setattr(reads, "LIST_SCAN_MAX", 8)
    monkeypatch.setattr(reads, "LIST_SLICE_MAX", 4)
    await create(node)
    await put(node, *[b"x"] * 9)
    request = pb.CountTasksRequest(tube="emails", filter="id > 2 AND NOT id = 5")
    first = await node.tasks.CountTasks(request)
    assert (first.count, first.examined, bool(first.next_page_token)) == (2, 4, True)
    await put(node, b"later")
    await node.tasks.DeleteTasks(pb.DeleteTasksRequest(tube="emails", selector=ids(6)))
    request.page_token = first.next_page_token
    second = await node.tasks.CountTasks(request)
    assert (second.count, second.examined, second.next_page_token) == (3, 4, "")
    other = pb.CountTasksRequest(tube="emails", page_token=first.next_page_token)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.CountTasks(other)
    assert reason_of(caught.value) == "INVALID_FIELD"


async def test_a_page_of_large_tasks_stays_within_the_message_limit(node):
    await create(node)
    for _ in range(6):
        await put(node, bytes(1_000_000))
    assert await pages(node) == [[1, 2, 3], [4, 5, 6]]


async def test_a_malformed_filter_is_refused_with_the_position(node):
    await create(node)
    request = pb.DeleteTasksRequest(
        tube="emails", selector=matching("state = BURIED AND attempts > 3")
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.DeleteTasks(request)
    packed = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(packed).details[0].Unpack(info)
    assert info.reason == "INVALID_FIELD"
    assert dict(info.metadata) == {"field": "selector.filter", "position": "19"}


async def test_a_bulk_change_returns_where_to_continue(node):
    await create(node)
    await put(node, *[b"x"] * 5)
    after_id, counts = 0, []
    while True:
        selector = matching("state = READY", tasks_max=2, after_id=after_id)
        answer = await node.tasks.BuryTasks(pb.BuryTasksRequest(tube="emails", selector=selector))
        counts.append(answer.count)
        after_id = answer.continue_after_id
        if not after_id:
            break
    assert counts == [2, 2, 1]


async def test_a_key_finds_its_task(node):
    await create(node)
    key = {"unique_key": ["order", "7"]}
    await put(node, b"first", **key)
    again = await put(node, b"again", **key, on_conflict=task_pb2.TaskSpec.RETURN_EXISTING)
    assert (list(again.task_ids), list(again.existing)) == ([1], [0])
    refused = await put(node, b"refused", **key)
    assert refused.errors[0].error.metadata["task_id"] == "1"
    keys = [task_pb2.UniqueKey(parts=["order", "7"]), task_pb2.UniqueKey(parts=["order", "8"])]
    selector = task_pb2.TaskSelector(keys=keys)
    found = await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=selector))
    assert [task.spec.payload for task in found.tasks] == [b"first"]
    assert [error.item for error in found.errors] == [1]


async def test_a_key_is_unique_within_selected_states_and_a_period(node):
    await create(node)
    waiting = {
        "unique_key": ["k"],
        "unique_states": [task_pb2.Task.READY, task_pb2.Task.DELAYED],
    }
    await put(node, b"first", **waiting)
    assert (await put(node, b"no", **waiting)).errors[0].error.metadata["task_id"] == "1"
    await take(node)
    assert list((await put(node, b"second", **waiting)).task_ids) == [2]
    hourly = {"unique_key": ["k"], "unique_ms": 3_600_000}
    assert (await put(node, b"no", **hourly)).errors[0].error.metadata["task_id"] == "2"
    (shown,) = (await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=ids(1)))).tasks
    assert list(shown.spec.unique_states) == waiting["unique_states"]


async def test_an_update_changes_content_and_headers(node):
    await create(node)
    await put(node, b"old", headers={"keep": b"1", "drop": b"2"}, content_type="text/plain")
    update = task_pb2.TaskUpdate(
        payload=b"new", headers_set={"add": b"3"}, headers_remove=["drop"], priority=4
    )
    request = pb.UpdateTasksRequest(tube="emails", selector=ids(1), update=update)
    assert (await node.tasks.UpdateTasks(request)).count == 1
    (task,) = (await take(node)).tasks
    assert (task.spec.payload, task.spec.content_type) == (b"new", "text/plain")
    assert dict(task.spec.headers) == {"keep": b"1", "add": b"3"}
    assert task.priority == 4


async def test_a_holder_learns_that_its_task_is_cancelled(node):
    await create(node)
    await put(node, b"1", b"2")
    opened = await node.sessions.OpenSession(session_service_pb2.OpenSessionRequest())
    session_id = opened.session.session_id
    leased = await take(node, session_id=session_id)
    token = leased.tasks[0].token
    cancelled = await node.tasks.CancelTasks(
        pb.CancelTasksRequest(tube="emails", selector=ids(leased.tasks[0].id))
    )
    assert (cancelled.asked, cancelled.removed) == (1, 0)
    kept = await node.sessions.KeepSessions(
        session_service_pb2.KeepSessionsRequest(session_ids=[session_id])
    )
    assert list(kept.cancel_tokens) == [token]
    touch = pb.Settlement(tokens=[token], touch=pb.Settlement.Touch(restart=True))
    settled = await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[touch]))
    assert settled.touched[0].cancel_requested


async def test_administrators_move_tasks_that_any_consumer_holds(node):
    await create(node)
    await put(node, b"1", b"2")
    leased = await take(node, tasks_max=1)
    snatched = await node.tasks.SnatchTasks(
        pb.SnatchTasksRequest(tube="emails", selector=ids(1), delay_ms=60_000)
    )
    assert snatched.count == 1
    stale = await node.tasks.SettleTasks(
        pb.SettleTasksRequest(
            settlements=[pb.Settlement(tokens=[leased.tasks[0].token], ack=pb.Settlement.Ack())]
        )
    )
    assert stale.errors[0].error.reason == 20
    switched = await node.tasks.SwitchTasks(
        pb.SwitchTasksRequest(tube="emails", selector=ids(2), state=Task.DONE)
    )
    restarted = await node.tasks.RestartTasks(
        pb.RestartTasksRequest(tube="emails", selector=matching("state = DONE"))
    )
    assert (switched.count, restarted.count) == (1, 1)
    states = await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=ids(1, 2)))
    assert [task.state for task in states.tasks] == [Task.DELAYED, Task.READY]


@pytest.mark.parametrize("durability", [TubeOptions.REPLICATED, TubeOptions.TEMPORARY])
async def test_a_request_id_belongs_to_one_method(node, durability):
    # On the wire, a deletion differs from a burial only in the method.
    options = TubeOptions(durability=durability)
    tube = tube_service_pb2.Tube(name="emails", kind=tube_service_pb2.Tube.FIFO, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
    task_id = (await put(node, b"1")).task_ids[0]
    raw = pb.BuryTasksRequest(request_id="r", tube="emails", selector=ids(task_id))
    assert (await node.tasks.BuryTasks(raw)).count == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.DeleteTasks(pb.DeleteTasksRequest.FromString(raw.SerializeToString()))
    assert reason_of(caught.value) == "REQUEST_ID_REUSED"
    found = await node.tasks.GetTasks(pb.GetTasksRequest(tube="emails", selector=ids(task_id)))
    assert found.tasks[0].state == Task.BURIED


async def test_moved_tasks_reach_waiting_consumers(node):
    """Targets of dead letters are not in the request; a repetition moves nothing more."""
    await create(node)
    await create(node, "other")
    await put(node, b"a", b"b")
    waiting = asyncio.create_task(take(node, "other", wait_ms=10_000))
    await node.waiting(1, "other")
    request = pb.MoveTasksRequest(
        request_id="once",
        tube="emails",
        selector=matching("id > 0", tasks_max=1),
        move_to="other",
        update=task_pb2.TaskUpdate(headers_set={"moved": b"yes", "by": b"me"}),
    )
    moved = await node.tasks.MoveTasks(request)
    assert (moved.count, moved.continue_after_id) == (1, 1)
    (task,) = (await waiting).tasks
    assert (task.tube, task.spec.payload, task.spec.headers["moved"]) == ("other", b"a", b"yes")
    again = await node.tasks.MoveTasks(request)
    assert (again.count, again.continue_after_id) == (1, 1)
    assert await pages(node) == [[2]]


async def test_dead_letters_show_their_origin_and_return_to_waiting_consumers(node):
    await create(node, "dead")
    options = tube_service_pb2.TubeOptions(dead_letter_tube="dead")
    mail = tube_service_pb2.Tube(name="emails", kind=tube_service_pb2.Tube.FIFOTTL, options=options)
    await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=mail))
    await put(node, b"a", unique_key=["k", "1"])
    (lease,) = (await take(node)).tasks
    reject = pb.Settlement(tokens=[lease.token], reject=pb.Settlement.Reject())
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[reject]))
    listed = pb.ListTasksRequest(tube="dead", filter="origin = emails AND origin:*")
    (letter,) = (await node.tasks.ListTasks(listed)).tasks
    assert (letter.origin.tube, letter.origin.task_id) == ("emails", 1)
    assert list(letter.origin.key.parts) == ["k", "1"]
    waiting = asyncio.create_task(take(node, wait_ms=10_000))
    await node.waiting(1, "emails")
    back = pb.MoveTasksRequest(tube="dead", selector=ids(letter.id), to_origin=True)
    assert (await node.tasks.MoveTasks(back)).count == 1
    (task,) = (await waiting).tasks
    assert (task.id, task.attempt, task.HasField("origin")) == (2, 1, False)
    assert list(task.spec.unique_key) == ["k", "1"]
