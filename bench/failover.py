"""Measure how long puts fail after the leader is killed or it or its disk hangs, on real disks.

Three processes run on loopback. One put starts every 10 ms. After a steady phase, the leader gets
SIGKILL (``--fault kill``) or SIGSTOP (``--fault pause``), or all its fsyncs hang (``--fault disk``)
or take a second longer (``--fault slow-disk``). The result is the time from the fault to the end of
the first put that started after the fault. The fault ends before the next round.

``--fault kill-all`` kills all nodes and starts them at once. ``--entries`` fills the log with
entries of one put each before the first round.

``--way client`` puts with the Python client, ``--way follower`` with a plain stub at a follower.
``--way stream`` puts with the client and ends each put when a subscription has received the task.

    python -m bench.failover [--rounds 50] [--fault kill] [--way client]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final, Protocol

import grpc
import grpc.aio

from taskraft import AsyncClient
from taskraft.errors import TaskraftError
from taskraft.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from tools.local_cluster import LocalCluster, Node
from tools.sync_fault import SyncFaults

if TYPE_CHECKING:
    from taskraft.v1.task_service_pb2_grpc import TaskServiceAsyncStub

PUT_EVERY_MS: Final = 10
STEADY_MS: Final = 500
"""How long everything must go well before the next kill."""
TUBE: Final = "failover"
FULL_TUBE: Final = "full"
PUT_TIMEOUT_SECONDS: Final = 10.0
TARGETS: Final = {
    "kill": "p50 350, p99 1000",
    "pause": "p50 1000, p99 2000",
    "disk": "p50 1000, p99 2000",
    "slow-disk": "p50 1000, p99 2000",
    "kill-all": "p50 3000, p99 3000",
}
"""Faults and the times in ms that their failovers should take at most."""
FILL_CALLS: Final = 128
"""Number of concurrent puts that fill the log."""
ONE_PUT_PER_ENTRY: Final = {
    "TASKRAFT_ENTRY_COMMANDS_MAX": "1",
    "TASKRAFT_ENTRIES_IN_FLIGHT_MAX": "64",
    "TASKRAFT_ENTRY_BYTES_MAX": str(1 << 20),
}
DISK_FAULT_SECONDS: Final = 3.0
"""How long a disk fault lasts after the puts are answered again."""


class Way(Protocol):
    """A way to put a task."""

    async def put(self, payload: bytes) -> None:
        """Put a task.

        Raises:
            TaskraftError, AioRpcError: the put failed.
        """


class ClientWay:
    """Puts with the client of the Python library."""

    def __init__(self, client: AsyncClient) -> None:
        self._tube = client.tube(TUBE)

    async def put(self, payload: bytes) -> None:
        """Put a task."""
        await self._tube.put(payload, timeout=PUT_TIMEOUT_SECONDS)


class StreamWay:
    """Puts with the client, and waits until a subscription has received the task."""

    def __init__(self, client: AsyncClient) -> None:
        self._tube = client.tube(TUBE)
        self._subscription = client.subscribe(TUBE, credit=1_000)
        self._awaited: dict[bytes, asyncio.Event] = {}

    async def receive(self) -> None:
        """Receive and acknowledge tasks until cancelled."""
        async with self._subscription as tasks:
            async for batch in tasks.batches():
                for task in batch:
                    if task.payload in self._awaited:
                        self._awaited[task.payload].set()
                await tasks.ack(batch)

    async def put(self, payload: bytes) -> None:
        """Put a task and wait until it was received."""
        received = self._awaited[payload] = asyncio.Event()
        try:
            await self._tube.put(payload, timeout=PUT_TIMEOUT_SECONDS)
            async with asyncio.timeout(PUT_TIMEOUT_SECONDS):
                await received.wait()
        finally:
            del self._awaited[payload]


class FollowerWay:
    """Puts with a plain stub at a node that was a follower when the round began."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._channels = {
            node.address: grpc.aio.insecure_channel(node.address) for node in cluster.nodes
        }
        self._stub: TaskServiceAsyncStub | None = None

    def choose_follower(self, leader: Node) -> None:
        """Use a node that does not lead."""
        follower = next(node for node in self._cluster.nodes if node is not leader)
        self._stub = task_service_pb2_grpc.TaskServiceStub(self._channels[follower.address])

    async def put(self, payload: bytes) -> None:
        """Put a task; the call is never repeated by this side."""
        assert self._stub is not None, "the round has begun"
        request = task_service_pb2.PutTasksRequest(
            request_id=uuid.uuid4().hex, tube=TUBE, tasks=[task_pb2.TaskSpec(payload=payload)]
        )
        await self._stub.PutTasks(request, timeout=PUT_TIMEOUT_SECONDS)


class Putter:
    """Puts a task every 10 ms, and notes when each put started and ended."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._in_flight: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._first_after = 0.0
        self._since = float("inf")
        self._numbers = itertools.count()
        self.acknowledged = 0
        self.failed = 0

    async def run(self) -> None:
        """Put until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            task = loop.create_task(self._put(time.monotonic()))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            due += PUT_EVERY_MS / 1000
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _put(self, begun: float) -> None:
        try:
            await self._way.put(b"%0100d" % next(self._numbers))
        except (TaskraftError, grpc.aio.AioRpcError, TimeoutError):
            self.failed += 1
            return
        self.acknowledged += 1
        if begun >= self._since:
            self._since = float("inf")
            self._first_after = time.monotonic()
            self._answered.set()

    async def silence_ms(self, since: float) -> float:
        """Return the ms from ``since`` until the end of a put that started after it."""
        self._answered.clear()
        self._since = since
        await self._answered.wait()
        return 1000 * (self._first_after - since)


class LeaderFault:
    """The fault of one kind, in a node."""

    def __init__(self, kind: str, cluster: LocalCluster, folder: Path) -> None:
        self.kind = kind
        self._cluster = cluster
        self._sync_faults = SyncFaults(cluster, folder) if kind in ("disk", "slow-disk") else None

    def begin(self, node: Node) -> None:
        """Disturb a node."""
        if self.kind == "kill":
            node.kill()
        elif self.kind == "kill-all":
            for each in self._cluster.nodes:
                each.kill()
            self._cluster.start()
        elif self._sync_faults is None:
            node.pause()
        elif self.kind == "disk":
            self._sync_faults.hang(node)
        else:
            self._sync_faults.delay(node, 1000)

    async def end(self, node: Node) -> None:
        """Let the node recover."""
        if self.kind == "kill":
            node.start()
        elif self.kind == "pause":
            node.resume()
        elif self._sync_faults is not None:
            await asyncio.sleep(DISK_FAULT_SECONDS)
            self._sync_faults.heal(node)


async def fill(address: str, entries: int) -> None:
    """Put tasks until the log has so many further entries."""
    numbers = iter(range(entries))
    async with grpc.aio.insecure_channel(address) as channel:
        stub: TaskServiceAsyncStub = task_service_pb2_grpc.TaskServiceStub(channel)

        async def put() -> None:
            for number in numbers:
                task = task_pb2.TaskSpec(payload=b"%0100d" % number)
                request = task_service_pb2.PutTasksRequest(tube=FULL_TUBE, tasks=[task])
                with contextlib.suppress(grpc.aio.AioRpcError):  # for example, a change of leader
                    await stub.PutTasks(request, timeout=PUT_TIMEOUT_SECONDS)

        await asyncio.gather(*(put() for _ in range(FILL_CALLS)))


async def measure(
    cluster: LocalCluster, rounds: int, fault: LeaderFault, way_name: str
) -> list[float]:
    """Disturb the leader `rounds` times; return the ms of each failover."""
    silences = []
    async with AsyncClient(cluster.target) as client:
        await client.create_tube(TUBE, if_not_exists=True)
        loop = asyncio.get_running_loop()
        way: Way = ClientWay(client)
        tasks = []
        if way_name == "stream":
            way = StreamWay(client)
            tasks.append(loop.create_task(way.receive()))
        elif way_name == "follower":
            way = FollowerWay(cluster)
            way.choose_follower(await asyncio.to_thread(cluster.wait_ready))
        putter = Putter(way)
        tasks.append(loop.create_task(putter.run()))
        for number in range(rounds):
            leader = await asyncio.to_thread(cluster.wait_ready)
            if isinstance(way, FollowerWay):
                way.choose_follower(leader)
            await asyncio.sleep(STEADY_MS / 1000)
            since = time.monotonic()
            fault.begin(leader)
            silences.append(await putter.silence_ms(since))
            print(f"{fault.kind} {number + 1}: {leader.name}, {silences[-1]:.0f} ms", flush=True)
            await fault.end(leader)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(f"puts acknowledged: {putter.acknowledged}, failed: {putter.failed}")
    return silences


def summary(silences: Sequence[float], fault: str, way: str) -> str:
    """Return the line with the results."""
    p99 = quantiles(silences, n=100, method="inclusive")[98] if len(silences) > 1 else silences[0]
    return (
        f"failover after {fault} of the leader, way {way}, {len(silences)} rounds: "
        f"p50 {median(silences):.0f} ms, p99 {p99:.0f} ms, maximum {max(silences):.0f} ms; "
        f"target {TARGETS[fault]}"
    )


def main() -> None:
    """Parse the arguments, measure, print the results."""
    parser = argparse.ArgumentParser(description="Measure how long a failover takes.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--fault", choices=TARGETS, default="kill")
    parser.add_argument("--entries", type=int, default=0)
    parser.add_argument("--way", choices=("client", "follower", "stream"), default="client")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskraft-failover-") as folder:
        settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
        if options.entries:
            settings |= ONE_PUT_PER_ENTRY
        cluster = LocalCluster(3, Path(folder) / "cluster", settings)
        fault = LeaderFault(options.fault, cluster, Path(folder) / "faults")
        with cluster:
            asyncio.run(fill(cluster.wait_ready().address, options.entries))
            silences = asyncio.run(measure(cluster, options.rounds, fault, options.way))
    print(summary(silences, options.fault, options.way))


if __name__ == "__main__":
    main()
