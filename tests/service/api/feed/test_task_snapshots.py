"""OpenTaskSnapshot and ReadTaskSnapshot: all tasks at one revision, complete and unchanged."""

import grpc
import pytest

from taskraft.v1 import feed_service_pb2 as feed
from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1 import tube_service_pb2
from taskraft_service.api.tasks import task_snapshots
from taskraft_service.limits import SNAPSHOTS_MAX
from tests.service.conftest import create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

BODY_APART = b"x" * 5_000


async def opened(node, **fields):
    return await node.feed.OpenTaskSnapshot(feed.OpenTaskSnapshotRequest(**fields))


async def parts(node, snapshot, tube="emails", **fields):
    request = feed.ReadTaskSnapshotRequest(snapshot_id=snapshot.snapshot_id, tube=tube, **fields)
    return [part async for part in node.feed.ReadTaskSnapshot(request, timeout=30)]


async def tasks(node, snapshot, **fields):
    return [task for part in await parts(node, snapshot, **fields) for task in part.tasks]


async def refused(node, snapshot, **fields):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await parts(node, snapshot, **fields)
    return reason_of(caught.value)


async def test_later_changes_are_not_in_the_snapshot(node):
    await create(node)
    await put(node, b"one", b"two", BODY_APART)
    (taken,) = (await take(node, tasks_max=1)).tasks
    snapshot = await opened(node)
    settlement = pb.Settlement(tokens=[taken.token], ack=pb.Settlement.Ack())
    await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))
    await put(node, b"later")
    await node.tubes.DropTube(tube_service_pb2.DropTubeRequest(name="emails", force=True))
    found = await tasks(node, snapshot)
    states = [state_of(task) for task in found]
    assert [task.spec.payload for task in found] == [b"one", b"two", BODY_APART]
    assert states == [("TAKEN", 1, 1), ("READY", 0, 2), ("READY", 0, 3)]
    listed = [(one.tube, one.first_id, one.last_id, one.tasks) for one in snapshot.tubes]
    assert listed == [("emails", 1, 3, 3)]


def state_of(task):
    return type(task).State.Name(task.state), task.attempt, task.id


async def test_events_after_the_snapshot_have_greater_revisions(node):
    await create(node)
    await put(node, b"before")
    snapshot = await opened(node)
    assert snapshot.revision == node.queue.applied_index
    described = await node.feed.DescribeFeed(feed.DescribeFeedRequest())
    ends = {one.partition: one.high_seq for one in described.partitions}
    assert (snapshot.cursor.feed_id, dict(snapshot.cursor.next_seq)) == (described.feed_id, ends)
    answer = await put(node, b"after")
    assert answer.revision > snapshot.revision


async def test_a_range_is_read_in_parts_that_continue(node, monkeypatch):
    monkeypatch.setattr(task_snapshots, "PART_TASKS", 2)
    await create(node)
    await put(node, *(b"%d" % number for number in range(7)))
    await node.tasks.DeleteTasks(pb.DeleteTasksRequest(tube="emails", selector={"ids": [4]}))
    snapshot = await opened(node)
    found = await parts(node, snapshot, after_id=1, last_id=6)
    assert [[task.id for task in part.tasks] for part in found] == [[2, 3], [5, 6]]
    assert [(part.through_id, part.last) for part in found] == [(3, False), (6, True)]
    assert [task.id for task in await tasks(node, snapshot)] == [1, 2, 3, 5, 6, 7]
    assert not any(task.spec.payload for task in await tasks(node, snapshot, payload_omit=True))
    assert await tasks(node, snapshot, tube="unknown") == []


@pytest.mark.parametrize("fields", [{"tube": "a b"}, {"after_id": -1}, {"last_id": -1}], ids=str)
async def test_an_invalid_range_is_refused(node, fields):
    await create(node)
    assert await refused(node, await opened(node), **fields) == "INVALID_FIELD"


def frozen(node):
    """Return the frozen states in the directory of a node."""
    return list((node.server.config.data_dir / "state" / "outgoing").iterdir())


async def test_a_snapshot_is_deleted_some_time_after_its_last_use(node):
    await create(node)
    await put(node, b"x")
    snapshot = await opened(node, keep_ms=1)
    await turns_until(lambda: not frozen(node))
    assert await refused(node, snapshot) == "SNAPSHOT_NOT_FOUND"


async def test_a_new_snapshot_replaces_the_one_that_is_idle_longest(node):
    await create(node)
    opens = [await opened(node) for _ in range(SNAPSHOTS_MAX)]
    await parts(node, opens[0])
    await opened(node)
    assert await refused(node, opens[1]) == "SNAPSHOT_NOT_FOUND"
    await parts(node, opens[0])


async def test_a_stopping_node_ends_a_read(node):
    await create(node)
    snapshot = await opened(node)
    node.server.components.apply_notifier.end()
    assert await refused(node, snapshot) == "DRAINING"
