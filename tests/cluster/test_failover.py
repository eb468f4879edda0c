"""Kill the leader of three real processes with SIGKILL while clients put, take and settle."""

import asyncio
import itertools
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest

from taskraft import Client
from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster
from tools.sync_fault import SyncFaults

pytestmark = pytest.mark.cluster

PUTS = 150
PUTS_BEFORE_THE_KILL = 40
TASKS_PER_PUT = 10
PRODUCERS = 3
CONSUMERS = 3
CALL_SECONDS = 3.0
RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass
class Record:
    """The facts that the clients have observed."""

    acknowledged: set[bytes] = field(default_factory=set)
    takers: dict[bytes, set[int]] = field(default_factory=dict)
    """Lease tokens of each payload."""
    finished: list[bytes] = field(default_factory=list)
    slowest: float = 0.0
    puts: int = 0
    busy: asyncio.Event = field(default_factory=asyncio.Event)
    killed: asyncio.Event = field(default_factory=asyncio.Event)


class Cluster:
    """A client that sends the same request to one node after another until one answers."""

    def __init__(self, addresses) -> None:
        options = (("grpc.max_reconnect_backoff_ms", 200),)
        self.channels = [grpc.aio.insecure_channel(one, options=options) for one in addresses]
        self._turn = itertools.cycle(range(len(self.channels)))

    async def call(self, stub, method, request):
        until = time.monotonic() + 30
        while True:
            channel = self.channels[next(self._turn)]
            try:
                return await getattr(stub(channel), method)(request, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() not in RETRYABLE or time.monotonic() > until:
                    raise

    async def close(self):
        for channel in self.channels:
            await channel.close()


async def produce(cluster, record, numbers):
    for number in numbers:
        payloads = [b"%d.%d" % (number, place) for place in range(TASKS_PER_PUT)]
        request = pb.PutTasksRequest(
            request_id=str(uuid.uuid4()),
            tube="work",
            tasks=[task_pb2.TaskSpec(payload=payload) for payload in payloads],
        )
        began = time.monotonic()
        await cluster.call(task_service_pb2_grpc.TaskServiceStub, "PutTasks", request)
        record.slowest = max(record.slowest, time.monotonic() - began)
        record.acknowledged.update(payloads)
        record.puts += 1
        if record.puts >= PUTS_BEFORE_THE_KILL:
            # Put the remaining tasks only after the leader is killed.
            record.busy.set()
            await record.killed.wait()


async def consume(cluster, record, total):
    stub = task_service_pb2_grpc.TaskServiceStub
    while len(record.finished) < total:
        take = pb.TakeTasksRequest(
            request_id=str(uuid.uuid4()),
            sources=[pb.TakeSource(tube="work")],
            tasks_max=25,
            wait_ms=300,
        )
        taken = await cluster.call(stub, "TakeTasks", take)
        if not taken.tasks:
            continue
        for task in taken.tasks:
            record.takers.setdefault(task.spec.payload, set()).add(task.token)
        ack = pb.Settlement(tokens=[task.token for task in taken.tasks], ack=pb.Settlement.Ack())
        settle = pb.SettleTasksRequest(request_id=str(uuid.uuid4()), settlements=[ack])
        settled = await cluster.call(stub, "SettleTasks", settle)
        assert not settled.errors
        record.finished += [task.spec.payload for task in taken.tasks]


async def kill_the_leader(nodes, record):
    await record.busy.wait()
    leader = await asyncio.to_thread(nodes.leader)
    assert leader is not None
    await asyncio.to_thread(leader.kill)
    record.killed.set()
    return leader


async def test_acknowledged_tasks_survive_a_killed_leader_and_have_one_holder_each(tmp_path):
    nodes = LocalCluster(3, tmp_path)
    with nodes:
        cluster = Cluster([node.address for node in nodes.nodes])
        tube = tube_service_pb2.Tube(name="work", kind=tube_service_pb2.Tube.FIFOTTL)
        request = tube_service_pb2.CreateTubeRequest(tube=tube, if_not_exists=True)
        await cluster.call(tube_service_pb2_grpc.TubeServiceStub, "CreateTube", request)
        record = Record()
        total = PUTS * TASKS_PER_PUT
        work = [
            asyncio.ensure_future(produce(cluster, record, range(place, PUTS, PRODUCERS)))
            for place in range(PRODUCERS)
        ] + [asyncio.ensure_future(consume(cluster, record, total)) for _ in range(CONSUMERS)]
        async with asyncio.timeout(90):
            killed = await kill_the_leader(nodes, record)
            await asyncio.gather(*work)
        print(f"longest put over the failover: {record.slowest * 1000:.0f} ms")
        assert len(record.acknowledged) == total
        assert set(record.finished) == record.acknowledged, "acknowledged tasks were lost"
        assert len(record.finished) == total, "a task was finished twice"
        assert {len(tokens) for tokens in record.takers.values()} == {1}, (
            "two consumers held one task"
        )
        # The killed node starts again, catches up and has the same state.
        killed.start()
        await asyncio.to_thread(nodes.wait_ready)
        statistics = await cluster.call(
            tube_service_pb2_grpc.TubeServiceStub,
            "GetStatistics",
            tube_service_pb2.GetStatisticsRequest(),
        )
        assert statistics.total.tasks.total == 0
        assert statistics.total.calls.ack == total
        await cluster.close()
        for node in nodes.running():
            assert await asyncio.to_thread(node.stop) == 0


PUT_ONCE = """
import sys
from taskraft import Client

target, client_id = sys.argv[1:]
with Client(target, client_id=client_id) as client:
    print(client.tube("work").put("order 7", request_id="order-4711"))
"""


def put_once(target, client_id):
    """Put a task in a process of its own; return the id of the task."""
    command = [sys.executable, "-c", PUT_ONCE, target, client_id]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def test_a_put_repeated_by_another_process_after_a_leader_kill_has_one_effect(tmp_path):
    with LocalCluster(3, tmp_path, {"TASKRAFT_AUTO_CREATE_TUBES": "true"}) as nodes:
        first = put_once(nodes.target, "shop")
        leader = nodes.leader()
        assert leader is not None
        leader.kill()
        assert put_once(nodes.target, "shop") == first
        assert put_once(nodes.target, "mail") != first
        with Client(nodes.target) as client:
            assert client.tube("work").stats().tasks.total == 2


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to delay fsyncs with")
def test_disks_that_stall_for_200_ms_cost_no_election(tmp_path):
    """Uses the default settings: heartbeats continue during slow fsyncs."""
    cluster = LocalCluster(3, tmp_path / "c", {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
    disks = SyncFaults(cluster, tmp_path / "faults")
    with cluster as nodes:
        before = nodes.leader().state()
        for node in nodes.nodes:
            disks.delay(node, 200)
        with Client(nodes.target) as client:
            for _ in range(8):
                client.tube("work").put(b"x", timeout=10)
        after = nodes.leader().state()
    assert (after.leader, after.state.term) == (before.leader, before.state.term)


async def test_a_stopped_leader_transfers_leadership_without_an_election_timeout(tmp_path):
    nodes = LocalCluster(3, tmp_path, {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
    with nodes:
        leader = nodes.leader()
        assert leader is not None
        others = [node.address for node in nodes.nodes if node is not leader]
        cluster = Cluster(others)
        request = pb.PutTasksRequest(tube="work", tasks=[task_pb2.TaskSpec(payload=b"x")])
        stub = task_service_pb2_grpc.TaskServiceStub
        await cluster.call(stub, "PutTasks", request)
        stopping = asyncio.create_task(asyncio.to_thread(leader.stop))
        slowest = 0.0
        while not stopping.done():
            began = time.monotonic()
            await cluster.call(stub, "PutTasks", request)
            slowest = max(slowest, time.monotonic() - began)
        assert await stopping == 0
        # The put took less than an election timeout, so no member waited for one.
        print(f"longest put over the hand-over: {slowest * 1000:.0f} ms")
        assert slowest < 2.0
        await cluster.close()
