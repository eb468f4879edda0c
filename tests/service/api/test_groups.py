"""Groups on running nodes: held, started, followed by one task, across leaders."""

import asyncio

import grpc
import pytest

from taskraft.v1 import error_pb2, group_service_pb2_grpc, task_pb2, tube_service_pb2
from taskraft.v1 import group_service_pb2 as groups
from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

Group = groups.Group


def stub(node):
    return group_service_pb2_grpc.GroupServiceStub(node.channel)


async def make(node, name="g", **fields):
    group = Group(name=name, **fields)
    return (await stub(node).CreateGroup(groups.CreateGroupRequest(group=group))).group


async def start(node, name="g", **fields):
    return (await stub(node).StartGroup(groups.StartGroupRequest(name=name, **fields))).group


async def shown(node, name="g"):
    return (await stub(node).GetGroup(groups.GetGroupRequest(name=name))).group


def follower(payload, **spec):
    return groups.GroupTask(tube="ends", spec=task_pb2.TaskSpec(payload=payload, **spec))


async def test_the_start_and_the_end_of_a_group_serve_waiting_consumers(node):
    await create(node)
    await create(node, name="ends")
    made = await make(node, end_task=follower(b"all done", headers={"a": b"b"}))
    assert (made.state, made.open) == (Group.HELD, 0)
    await put(node, b"1", b"2", group="g")
    first = asyncio.ensure_future(take(node, wait_ms=8_000))
    last = asyncio.ensure_future(take(node, tube="ends", wait_ms=8_000))
    await node.waiting_anywhere(2)
    assert (await shown(node)).open == 2
    started = await start(node)
    assert (started.state, started.open) == (Group.STARTED, 2)
    await ack(node, (await first).tasks)
    (end,) = (await last).tasks
    assert (end.spec.payload, end.spec.headers["a"]) == (b"all done", b"b")
    ended = await shown(node)
    assert (ended.state, ended.processed, ended.last_task_id) == (Group.ENDED, 2, end.id)
    assert ended.end_task.spec.payload == b"all done"
    assert ended.ended_ms >= ended.created_ms > 0


async def test_a_cancelled_group_puts_its_abort_task(node):
    await create(node)
    await create(node, name="ends")
    await make(node, abort_task=follower(b"aborted"))
    await put(node, b"1", b"2", group="g")
    await start(node)
    await take(node, tasks_max=1)
    request = groups.CancelGroupRequest(name="g", revoke=True, request_id="r")
    for _ in range(2):
        group = (await stub(node).CancelGroup(request)).group
        assert (group.state, group.open, group.cancelled) == (Group.CANCELLED, 0, 2)
    (end,) = (await take(node, tube="ends")).tasks
    assert end.spec.payload == b"aborted"


async def test_a_group_shows_why_its_end_task_was_refused(node):
    await make(node, end_task=groups.GroupTask(tube="nowhere"))
    group = await start(node)
    assert group.state == Group.ENDED
    assert group.last_error.reason == error_pb2.Error.TUBE_NOT_FOUND


async def test_an_end_task_that_its_tube_does_not_support_is_refused_at_creation(node):
    """The faults of both tasks in existing tubes are reported together."""
    await create(node, name="ends", kind=tube_service_pb2.Tube.FIFO)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await make(node, end_task=follower(b"end", priority=1), abort_task=follower(b"a", ttl_ms=5))
    assert reason_of(caught.value) == "INVALID_FIELD"
    for field in ("group.end_task.spec.priority", "group.abort_task.spec.ttl_ms"):
        assert field in str(caught.value.trailing_metadata())
    await make(node, end_task=groups.GroupTask(tube="later", spec=task_pb2.TaskSpec(priority=1)))


async def test_a_task_of_an_unknown_group_is_refused_on_its_own(node):
    await create(node)
    tasks = [task_pb2.TaskSpec(payload=b"ok"), task_pb2.TaskSpec(group="nobody")]
    answer = await node.tasks.PutTasks(pb.PutTasksRequest(tube="emails", tasks=tasks))
    assert list(answer.task_ids) == [1, 0]
    assert [error.error.reason for error in answer.errors] == [error_pb2.Error.GROUP_NOT_FOUND]
    await make(node)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await make(node)
    assert reason_of(caught.value) == "GROUP_EXISTS"


async def test_a_large_group_continues_under_the_next_leader(tmp_path):
    """The start takes several entries; leadership is lost between two of these entries."""
    async with cluster_in(tmp_path, collect_entries=1) as three:
        await create(three.leader)
        await create(three.leader, name="ends")
        await make(three.followers[0], end_task=follower(b"end"))
        for _ in range(5):
            await put(three.leader, *[b"x"] * 1_000, group="g")
        starting = asyncio.ensure_future(start(three.followers[0], request_id="r"))
        old = three.leader
        await turns_until(lambda: old.queue.group("g").state == Group.STARTED)
        await three.stop(old)
        await three.settled()
        assert (await starting).state == Group.STARTED
        leader = three.leader
        await turns_until(lambda: leader.queue.statistics(["emails"])[0].states[1] == 5_000)
        for _ in range(5):
            await ack(leader, (await take(leader, tasks_max=1_000)).tasks)
        assert (await shown(three.followers[0])).processed == 5_000
        assert len((await take(leader, tube="ends")).tasks) == 1
        index = leader.queue.applied_index
        await turns_until(lambda: {node.queue.applied_index for node in three.nodes} == {index})
        assert len({node.queue.digest() for node in three.nodes}) == 1


async def test_the_end_task_of_a_group_is_replaced_until_the_group_ends(node):
    await create(node)
    await create(node, name="ends")
    await make(node, end_task=follower(b"first"))
    await put(node, b"1", group="g")
    await start(node)
    changed = groups.SetEndTaskRequest(name="g", end_task=follower(b"second"))
    answer = (await stub(node).SetEndTask(changed)).group
    assert answer.end_task.spec.payload == b"second"
    await ack(node, (await take(node)).tasks)
    (end,) = (await take(node, tube="ends")).tasks
    assert end.spec.payload == b"second"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(node).SetEndTask(changed)
    assert reason_of(caught.value) == "WRONG_STATE"


async def test_groups_are_listed_by_name_and_state_in_pages(node):
    await create(node)
    for name in ("book-2", "book-1", "film-1", "a name with spaces"):
        await make(node, name)
    await start(node, "book-2")

    async def listed(**fields):
        answer = await stub(node).ListGroups(groups.ListGroupsRequest(**fields))
        return [one.name for one in answer.groups], answer.next_page_token

    assert await listed() == (["a name with spaces", "book-1", "book-2", "film-1"], "")
    assert await listed(names=["book-*"]) == (["book-1", "book-2"], "")
    assert await listed(names=["a name*", "film-1"]) == (["a name with spaces", "film-1"], "")
    assert await listed(states=[Group.ENDED]) == (["book-2"], "")
    first, token = await listed(page_size=3)
    assert len(first) == 3
    assert await listed(page_size=3, page_token=token) == (["film-1"], "")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await listed(names=["book-*"], page_token=token)
    assert reason_of(caught.value) == "INVALID_FIELD"
