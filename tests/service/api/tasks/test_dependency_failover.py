"""Dependent tasks on three nodes, with a leader that stops in the middle."""

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, create, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

LINKS = 12
AFTER_LINKS = 5


def chain():
    """Return tasks that each depend on the previous task."""
    before = [[], *([task_pb2.Dependency(item=item)] for item in range(LINKS - 1))]
    return [
        task_pb2.TaskSpec(payload=b"%d" % place, depends_on=on) for place, on in enumerate(before)
    ]


async def test_a_chain_continues_in_order_when_the_leader_stops(tmp_path):
    """No task is lost, and none runs before its dependency is acknowledged."""
    async with cluster_in(tmp_path) as three:
        await create(three.leader)
        await three.leader.tasks.PutTasks(pb.PutTasksRequest(tube="emails", tasks=chain()))
        run = []
        for link in range(LINKS):
            if link == AFTER_LINKS:
                await three.stop(three.leader)
                await turns_until(lambda: len(three.followers) == 1)
                await three.settled()
            taken = await take(three.followers[0], wait_ms=5_000)
            run += [int(task.spec.payload) for task in taken.tasks]
            assert run == list(range(link + 1))
            early = await take(three.leader)
            assert not early.tasks
            assert not (await ack(three.leader, taken.tasks)).errors
        (counts,) = three.leader.queue.statistics(["emails"])
        assert not any(counts.states.values())
        await turns_until(lambda: len({node.queue.applied_index for node in three.nodes}) == 1)
        assert len({node.queue.digest() for node in three.nodes}) == 1
