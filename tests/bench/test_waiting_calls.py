"""Calls that wait at a node are woken by events, and wait again."""

import pytest

from bench.worst.stage import Size, Stage
from bench.worst.waiting_calls import HELD, Counts, WaitingCalls
from taskraft.v1 import task_service_pb2 as task_pb
from taskraft_service.clock.cluster_clock import NodeClocks
from taskraft_service.memory_node.memory_node import MemoryNode


@pytest.mark.timeout(60)
async def test_events_wake_the_calls_and_the_streams_keep_their_leases():
    node = MemoryNode(NodeClocks())
    await node.start()
    stage = Stage(node.channel(), Size(1, 0, 0, 0, 0))
    await stage.fill()
    counts = Counts(takes=5, streams=3, outcomes=2, watches=4, puts=6)
    waiting = WaitingCalls(stage, counts, pause_seconds=0)
    await waiting.begin()
    for _ in range(3):
        await waiting.wake()
    assert waiting.waiting() == counts.calls == 17
    leases = await stage.tasks.CountTasks(
        task_pb.CountTasksRequest(tube=HELD, filter="state = TAKEN")
    )
    assert leases.count == counts.streams
    await waiting.end()
