"""Many consumers of some types on three nodes: no task is lost, and each consumer is served."""

import asyncio

import pytest

from taskraft.v1 import task_service_pb2 as pb
from tests.service.api.streams.test_subscribe import Stream
from tests.service.api.test_three_nodes import cluster_in
from tests.service.conftest import ack, create, put, take

pytestmark = pytest.mark.real_time

TYPES = ("t0", "t1", "t2", "t3")
TASKS_PER_TYPE = 20
CALLERS = (("t0",), ("t1",), ("t2",), ("t2", "t3"))
STREAMS = 4


class Work:
    """The work done by the consumers, and whether all of it is done."""

    def __init__(self):
        self.done = []
        self.by_consumer = {}
        self.all_done = asyncio.Event()

    def note(self, consumer, types, tasks):
        assert {task.spec.type for task in tasks} <= set(types)
        self.done += [task.spec.payload for task in tasks]
        self.by_consumer.setdefault(consumer, []).extend(tasks)
        if len(self.done) >= TASKS_PER_TYPE * len(TYPES):
            self.all_done.set()


async def call(node, number, types, work):
    """Take one task at a time by unary calls."""
    while True:
        taken = await take(node, tasks_max=1, wait_ms=9_000, types=types)
        await ack(node, taken.tasks)
        work.note(f"caller {number}", types, taken.tasks)


async def subscribe(node, number, work):
    """Take two tasks at a time, and ask for another type after each message."""
    stream = Stream(node)
    wanted = TYPES[number]
    await stream.open(tasks=2, types=[wanted])
    while True:
        message = await stream.read()
        if message.tasks:
            await stream.ack(message.tasks)
            # A task that was in flight during the change of the filter has the earlier type.
            work.note(f"stream {number}", TYPES, message.tasks)
            wanted = TYPES[(TYPES.index(wanted) + 1) % len(TYPES)]
            await stream.filter(types=[wanted])
            await stream.grant(len(message.tasks))


async def test_eight_typed_consumers_share_the_work_on_three_nodes(tmp_path):
    async with cluster_in(tmp_path) as three:
        await create(three.leader)
        for _ in range(5):
            await put(three.leader, *[b"in front"] * 20, type="other", priority=-1)
        work = Work()
        async with asyncio.TaskGroup() as group:
            consumers = [
                group.create_task(call(three.nodes[number % 3], number, types, work))
                for number, types in enumerate(CALLERS)
            ]
            consumers += [
                group.create_task(subscribe(three.nodes[number % 3], number, work))
                for number in range(STREAMS)
            ]
            for number in range(TASKS_PER_TYPE):
                for name in TYPES:
                    await put(three.nodes[number % 3], f"{name}/{number}".encode(), type=name)
            async with asyncio.timeout(20):
                await work.all_done.wait()
            for consumer in consumers:
                consumer.cancel()
        expected = {
            f"{name}/{number}".encode() for name in TYPES for number in range(TASKS_PER_TYPE)
        }
        assert len(work.done) == len(expected)
        assert set(work.done) == expected
        assert {f"caller {number}" for number in range(len(CALLERS))} <= work.by_consumer.keys()
        left = await three.leader.tasks.ListTasks(pb.ListTasksRequest(tube="emails", page_size=200))
        assert {task.spec.type for task in left.tasks} == {"other"}
        assert len(left.tasks) == 100
