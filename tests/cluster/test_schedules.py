"""Kill the leader of three real processes with SIGKILL while schedules fire and calls wait."""

import asyncio
import itertools
import os
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest

from taskraft.v1 import (
    schedule_service_pb2,
    schedule_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.cluster

SCHEDULES = 40
JITTER_MS = 5_000
TICKS_BEFORE_THE_KILL = 10
CONSUMERS = 3
CALL_SECONDS = 3.0
WAIT_MS = 60_000
LEAD_MS = 2_000
"""The nodes' clocks start this long before the scheduled time."""
CLOCK = """
import os, time
_real, _ahead_ns = time.time_ns, int(os.environ["TEST_CLOCK_AHEAD_MS"]) * 1_000_000
time.time_ns = lambda: _real() + _ahead_ns
"""
"""Sets the wall clock of a node, so that the test does not wait for the next full minute."""
RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
TaskStub = task_service_pb2_grpc.TaskServiceStub
TubeStub = tube_service_pb2_grpc.TubeServiceStub
ScheduleStub = schedule_service_pb2_grpc.ScheduleServiceStub


@dataclass
class Record:
    """The scheduled times of the acknowledged tasks, with their schedule, in order."""

    ticks: list[tuple[bytes, bytes]] = field(default_factory=list)
    busy: asyncio.Event = field(default_factory=asyncio.Event)


class Nodes:
    """A client that tries one node after the other until a node answers."""

    def __init__(self, addresses):
        options = (("grpc.max_reconnect_backoff_ms", 200),)
        self.channels = [grpc.aio.insecure_channel(one, options=options) for one in addresses]
        self._turn = itertools.cycle(range(len(self.channels)))
        self.retries = Counter()

    async def call(self, stub, method, request, seconds=CALL_SECONDS):
        until = time.monotonic() + 60
        while True:
            channel = self.channels[next(self._turn)]
            try:
                return await getattr(stub(channel), method)(request, timeout=seconds)
            except grpc.aio.AioRpcError as error:
                if error.code() not in RETRYABLE or time.monotonic() > until:
                    raise
                self.retries[method] += 1

    async def close(self):
        for channel in self.channels:
            await channel.close()


async def schedule_all(nodes):
    """Create the tubes and the schedules; return the time for which all of them are due."""
    for name in ("ticks", "slow"):
        tube = tube_service_pb2.Tube(name=name, kind=tube_service_pb2.Tube.FIFOTTL)
        request = tube_service_pb2.CreateTubeRequest(tube=tube, if_not_exists=True)
        await nodes.call(TubeStub, "CreateTube", request)
    for number in range(SCHEDULES):
        schedule = schedule_service_pb2.Schedule(
            name=f"schedule-{number}",
            cron="0 0 1 1 *",
            tube="ticks",
            jitter_ms=JITTER_MS,
            spec=task_pb2.TaskSpec(payload=b"%d" % number),
        )
        request = schedule_service_pb2.CreateScheduleRequest(
            schedule=schedule, request_id=str(uuid.uuid4())
        )
        await nodes.call(ScheduleStub, "CreateSchedule", request)
    (next_ms,) = {schedule.next_ms for schedule in await schedules(nodes)}
    return next_ms


async def schedules(nodes):
    request = schedule_service_pb2.ListSchedulesRequest()
    return (await nodes.call(ScheduleStub, "ListSchedules", request)).schedules


def restart_before(cluster, folder, at_ms):
    """Restart all nodes with clocks shortly before the scheduled time."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CLOCK)
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    ahead_ms = at_ms - LEAD_MS - time.time_ns() // 1_000_000
    for node in cluster.nodes:
        node.stop()
    for node in cluster.nodes:
        clock = {"PYTHONPATH": path, "TEST_CLOCK_AHEAD_MS": str(ahead_ms)}
        node.environment = {**node.environment, **clock}
        node.start()
    cluster.wait_ready()


async def consume(nodes, record):
    while len(record.ticks) < SCHEDULES:
        taken = await nodes.call(TaskStub, "TakeTasks", take("ticks", wait_ms=1_000))
        if taken.tasks:
            await ack(nodes, taken.tasks)
        for task in taken.tasks:
            record.ticks.append((task.spec.payload, task.spec.headers["taskraft-slot-ms"]))
        if len(record.ticks) >= TICKS_BEFORE_THE_KILL:
            record.busy.set()


def take(tube, **fields):
    sources = [pb.TakeSource(tube=tube)]
    return pb.TakeTasksRequest(request_id=str(uuid.uuid4()), sources=sources, **fields)


async def ack(nodes, tasks):
    settlement = pb.Settlement(tokens=[task.token for task in tasks], ack=pb.Settlement.Ack())
    request = pb.SettleTasksRequest(request_id=str(uuid.uuid4()), settlements=[settlement])
    settled = await nodes.call(TaskStub, "SettleTasks", request)
    assert not settled.errors


async def wait_for(nodes, task_id):
    selector = task_pb2.TaskSelector(ids=[task_id])
    request = pb.WaitTasksRequest(tube="slow", selector=selector, wait_ms=WAIT_MS)
    return await nodes.call(TaskStub, "WaitTasks", request, seconds=WAIT_MS / 1_000)


async def put_and_wait(nodes):
    request = pb.PutTasksRequest(
        request_id=str(uuid.uuid4()),
        tube="slow",
        tasks=[task_pb2.TaskSpec(payload=b"waited for")],
        outcome_wait_ms=WAIT_MS,
    )
    return await nodes.call(TaskStub, "PutTasks", request, seconds=WAIT_MS / 1_000)


async def test_a_killed_leader_costs_no_scheduled_task_and_no_awaited_outcome(tmp_path):
    with LocalCluster(3, tmp_path) as cluster:
        nodes = Nodes([node.address for node in cluster.nodes])
        at_ms = await schedule_all(nodes)
        await asyncio.to_thread(restart_before, cluster, tmp_path / "clock", at_ms)
        one = pb.PutTasksRequest(
            request_id="one", tube="slow", tasks=[task_pb2.TaskSpec(payload=b"slow")]
        )
        (slow_id,) = (await nodes.call(TaskStub, "PutTasks", one)).task_ids
        (slow,) = (await nodes.call(TaskStub, "TakeTasks", take("slow"))).tasks
        waiter = asyncio.ensure_future(wait_for(nodes, slow_id))
        putter = asyncio.ensure_future(put_and_wait(nodes))
        record = Record()
        consumers = [asyncio.ensure_future(consume(nodes, record)) for _ in range(CONSUMERS)]
        async with asyncio.timeout(90):
            await record.busy.wait()
            leader = await asyncio.to_thread(cluster.leader)
            assert leader is not None
            await asyncio.to_thread(leader.kill)
            assert len(record.ticks) < SCHEDULES, "the kill came too late"
            await asyncio.gather(*consumers)
            (second,) = (await nodes.call(TaskStub, "TakeTasks", take("slow"))).tasks
            await ack(nodes, [slow, second])
            waited, put = await waiter, await putter
        assert [task.outcome for task in waited.tasks] == [task_pb2.Task.PROCESSED]
        assert [task.outcome for task in put.outcomes] == [task_pb2.Task.PROCESSED]
        assert [task.id for task in put.outcomes] == [second.id]
        times = Counter(record.ticks)
        expected = [(b"%d" % number, b"%d" % at_ms) for number in range(SCHEDULES)]
        assert times == Counter(expected), "one task for each schedule, with its time"
        assert {one.last_ms for one in await schedules(nodes)} == {at_ms}
        request = tube_service_pb2.GetStatisticsRequest(tubes=["slow", "ticks"])
        slow_tube, ticks = (await nodes.call(TubeStub, "GetStatistics", request)).tubes
        assert (slow_tube.calls.put, ticks.calls.put, ticks.calls.ack) == (2, SCHEDULES, SCHEDULES)
        await nodes.close()
