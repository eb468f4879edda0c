"""Calls with large answers wait until the node has room for their bytes."""

import asyncio

import pytest

from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import create, put, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

TASKS, BYTES = 20, 10_000
"""Number of tasks, and size of the payload and of the result of each."""
SELECTOR = task_pb2.TaskSelector(ids=range(1, TASKS + 1))


def settle(tokens):
    ack = pb.Settlement.Ack(result=b"x" * BYTES)
    settlements = [pb.Settlement(tokens=tokens, ack=ack)]
    return pb.SettleTasksRequest(settlements=settlements, return_tasks=True)


REQUESTS = {
    "GetTasks": lambda tokens: pb.GetTasksRequest(tube="emails", selector=SELECTOR),
    "ListTasks": lambda tokens: pb.ListTasksRequest(tube="emails"),
    "WaitTasks": lambda tokens: pb.WaitTasksRequest(tube="emails", selector=SELECTOR, wait_ms=1),
    "SettleTasks": settle,
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_call_waits_for_room_for_its_answer(node, name):
    await create(node)
    await put(node, *[b"x" * BYTES] * TASKS)
    taken = await take(node, tasks_max=TASKS)
    request = REQUESTS[name]([task.token for task in taken.tasks])
    load = node.server.components.load
    load.answers.add(load.answers.bytes_max, "")
    calling = asyncio.ensure_future(getattr(node.tasks, name)(request))
    await turns_until(lambda: load.answers.has_waiting)
    load.answers.add(-load.answers.bytes_max, "")
    assert (await calling).ByteSize() > TASKS * BYTES
    await turns_until(lambda: load.held_bytes == 0)
    assert len(load.answers.held) == 0
