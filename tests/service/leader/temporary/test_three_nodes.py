"""Every node of a cluster answers for temporary tubes; a change of leader empties them."""

import grpc
import pytest

from taskraft.v1 import error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.queue.entities.id_layout import TEMPORARY_TASKS
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, put, reason_of
from tests.service.leader.temporary.calls import (
    Options,
    acked,
    chosen,
    counts,
    listed,
    payloads,
    settle,
    take_from,
    temporary,
)
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

LOCAL = task_pb2.Consistency(level=task_pb2.Consistency.LOCAL)


@pytest.fixture
async def three(tmp_path):
    async with cluster_in(tmp_path) as one:
        yield one


async def defined_everywhere(three, name="scratch"):
    await turns_until(lambda: all(node.queue.tube(name) for node in three.nodes))


async def test_every_node_gives_the_same_answers(three):
    await temporary(three.followers[0])
    await defined_everywhere(three)
    for node in three.nodes:
        await put(node, b"a", tube="scratch")
        assert payloads(await listed(node, consistency=LOCAL)) == [b"a"]
        assert (await counts(node, consistency=LOCAL)).ready == 1
        taken = await take_from(node, "scratch")
        assert not (await ack(node, taken)).errors
    digests = {node.queue.digest() for node in three.nodes}
    assert len(digests) == 1


async def test_a_change_of_leader_drops_the_tasks_and_keeps_the_tube(three):
    await temporary(three.leader)
    ids = list((await put(three.leader, b"a", b"b", b"c", tube="scratch")).task_ids)
    taken = await take_from(three.leader, "scratch", tasks_max=1)
    await defined_everywhere(three)
    survivor = three.followers[0]
    await three.stop(three.leader)
    await three.settled()
    (tube,) = (await survivor.tubes.ListTubes(tube_service_pb2.ListTubesRequest())).tubes
    assert tube.options.durability == Options.TEMPORARY
    assert (await counts(survivor)).total == 0
    (refused,) = (await settle(survivor, acked(taken[0].token))).errors
    assert refused.error.reason == error_pb2.Error.LEASE_STALE
    get = pb.GetTasksRequest(tube="scratch", selector=chosen(ids[0]))
    (missing,) = (await survivor.tasks.GetTasks(get)).errors
    assert missing.error.reason == error_pb2.Error.TASK_NOT_FOUND
    # Ids and tokens of the previous leadership are not used again.
    again = list((await put(survivor, b"d", tube="scratch")).task_ids)
    (leased,) = await take_from(survivor, "scratch")
    assert again[0] > max(ids)
    assert leased.token > taken[0].token > TEMPORARY_TASKS
    wait = pb.WaitTasksRequest(tube="scratch", selector=chosen(ids[1]), wait_ms=5_000)
    answer = await survivor.tasks.WaitTasks(wait)
    assert [one.error.reason for one in answer.errors] == [error_pb2.Error.TASK_NOT_FOUND]


async def test_a_failed_transfer_keeps_the_contents(three):
    await temporary(three.leader)
    await put(three.leader, b"a", tube="scratch")
    leader = three.leader

    async def fail():
        raise RuntimeError("nobody takes it")

    with pytest.raises(RuntimeError):
        await leader.server.components.leadership.transfer(fail)
    assert payloads(await take_from(leader, "scratch")) == [b"a"]


async def test_a_waiting_take_moves_to_the_next_leader(three):
    await temporary(three.leader)
    await defined_everywhere(three)
    follower, other = three.followers
    request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="scratch")], wait_ms=9_000)
    waiting = follower.tasks.TakeTasks(request, timeout=10)
    await three.leader.waiting(1, "scratch")
    await three.stop(three.leader)
    await three.settled()
    await put(other, b"x", tube="scratch")
    assert payloads((await waiting).tasks) == [b"x"]


async def test_a_follower_without_a_leader_does_not_report_tubes_as_empty(three):
    await temporary(three.leader)
    await defined_everywhere(three)
    survivor = three.followers[0]
    for node in [node for node in three.nodes if node is not survivor]:
        await three.stop(node)
    await turns_until(lambda: survivor.server.components.leadership.leader is None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await listed(survivor, consistency=LOCAL)
    assert reason_of(caught.value) == "NO_LEADER"
