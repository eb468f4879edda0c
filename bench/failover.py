"""Measure the wait of puts after a fault of the leader, and the duration of the longest put.

Three nodes run on one machine. One put starts every 10 ms. After a steady phase, a fault begins:

- ``kill``: SIGKILL of the leader; ``pause``: SIGSTOP of the leader
- ``disk``: all fsyncs of the leader hang; ``slow-disk``: each takes a second longer
- ``isolate``: all packets of the leader are lost; ``cut-peers``: only its packets to other nodes
- ``cut-follower``: all packets between one follower and the other nodes are lost
- ``kill-all``: SIGKILL of all nodes, which start again at once

A round has two results: the time from the fault to the end of the first put that started after the
fault, and the longest put of the round. The fault ends before the next round.

``--entries`` fills the log with entries of one put each before the first round. ``--unflushed``
prevents the nodes from flushing their state, so that a start replays all these entries.

``--way client`` puts with the Python client, ``--way follower`` with a plain stub at a follower.
``--way stream`` puts with the client and ends each put when a subscription has received the task.

    python -m bench.failover [--rounds 50] [--fault kill] [--way client]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from bench.leader_faults import NETWORK_FAULTS, LeaderFault
from bench.percentiles import median_and_p99
from bench.put_ways import PUT_TIMEOUT_SECONDS, TUBE, ClientWay, FollowerWay, StreamWay, Way
from taskraft import AsyncClient
from taskraft.errors import TaskraftError
from taskraft.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from tools.local_cluster import LocalCluster
from tools.node_networks import command_of_namespaces, missing

if TYPE_CHECKING:
    from taskraft.v1.task_service_pb2_grpc import TaskServiceAsyncStub

PUT_EVERY_MS: Final = 10
STEADY_MS: Final = 500
"""Time without failures before the next fault, in ms."""
FULL_TUBE: Final = "full"
TARGETS: Final = {
    "kill": "p50 350, p99 1000",
    "pause": "p50 1000, p99 2000",
    "disk": "p50 1000, p99 2000",
    "slow-disk": "p50 1000, p99 2000",
    "isolate": "p50 1000, p99 2000",
    "cut-peers": "p50 1000, p99 2000",
    "cut-follower": "longest put 1000",
    "kill-all": "p50 3000, p99 3000",
}
"""Target maximum failover time by kind of fault, in ms."""
FAILURES_SHOWN: Final = 5
FILL_CALLS: Final = 128
"""Number of concurrent puts that fill the log."""
ONE_PUT_PER_ENTRY: Final = {
    "TASKRAFT_ENTRY_COMMANDS_MAX": "1",
    "TASKRAFT_ENTRIES_IN_FLIGHT_MAX": "64",
    "TASKRAFT_ENTRY_BYTES_MAX": str(1 << 20),
}
NEVER_FLUSH: Final = {
    "TASKRAFT_LOG_FLUSH_ENTRIES": "100000000",
    "TASKRAFT_LOG_FLUSH_BYTES": str(1 << 36),
    "TASKRAFT_WRITE_BUFFER_BYTES": str(1 << 27),
}
IN_NAMESPACES: Final = "BENCH_IN_NAMESPACES"
"""Environment variable of the process that runs in its own namespaces."""


class Putter:
    """Puts a task every 10 ms, and records when each put started and ended."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._in_flight: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._first_after = 0.0
        self._since = float("inf")
        self._numbers = itertools.count()
        self.longest_ms = 0.0
        """Duration of the longest put that succeeded; the owner may reset it."""
        self.acknowledged = 0
        self.failed = 0

    async def run(self) -> None:
        """Put tasks until cancelled."""
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
        except (TaskraftError, grpc.aio.AioRpcError, TimeoutError) as error:
            self.failed += 1
            if self.failed <= FAILURES_SHOWN:
                print(f"failed after {1000 * (time.monotonic() - begun):.0f} ms: {error!r}"[:300])
            return
        self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - begun))
        self.acknowledged += 1
        if begun >= self._since:
            self._since = float("inf")
            self._first_after = time.monotonic()
            self._answered.set()

    async def finish_started(self) -> None:
        """Wait until all puts have ended that were started before this call."""
        await asyncio.gather(*self._in_flight)

    async def silence_ms(self, since: float) -> float:
        """Return the time in ms from ``since`` until the first put that started later ends."""
        self._answered.clear()
        self._since = since
        await self._answered.wait()
        return 1000 * (self._first_after - since)


async def fill(address: str, entries: int) -> None:
    """Put tasks until the log has ``entries`` further entries."""
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
) -> tuple[list[float], list[float]]:
    """Cause a fault `rounds` times; return the ms of the failovers and of the longest puts."""
    silences: list[float] = []
    longest: list[float] = []
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
            putter.longest_ms = 0.0
            since = time.monotonic()
            fault.begin(leader)
            silences.append(await putter.silence_ms(since))
            await fault.end(leader)
            if fault.kind in NETWORK_FAULTS:
                await asyncio.to_thread(cluster.wait_ready)
            await putter.finish_started()
            longest.append(putter.longest_ms)
            print(
                f"{fault.kind} {number + 1}: {leader.name}, {silences[-1]:.0f} ms, "
                f"longest put {longest[-1]:.0f} ms, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(f"puts acknowledged: {putter.acknowledged}, failed: {putter.failed}")
    return silences, longest


def in_words(values: Sequence[float]) -> str:
    """Return the statistics of a list of times in ms."""
    median, p99 = median_and_p99(values)
    return f"p50 {median:.0f} ms, p99 {p99:.0f} ms, maximum {max(values):.0f} ms"


def summary(silences: Sequence[float], longest: Sequence[float], fault: str, way: str) -> str:
    """Return the lines with the results."""
    return (
        f"failover after {fault}, way {way}, {len(silences)} rounds: {in_words(silences)}; "
        f"target {TARGETS[fault]}\nlongest put of each round: {in_words(longest)}"
    )


def enter_namespaces() -> None:
    """Replace this process by one in network and mount namespaces of its own."""
    if os.environ.get(IN_NAMESPACES):
        return
    if reason := missing():
        sys.exit(f"this fault needs network namespaces, which the machine does not allow: {reason}")
    os.environ[IN_NAMESPACES] = "1"
    command = command_of_namespaces(sys.executable, "-m", "bench.failover", *sys.argv[1:])
    os.execvp(command[0], [*command])  # noqa: S606 - the arguments are those of this process


def main() -> None:
    """Parse the arguments, measure, print the results."""
    parser = argparse.ArgumentParser(description="Measure how long a failover takes.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--fault", choices=TARGETS, default="kill")
    parser.add_argument("--entries", type=int, default=0)
    parser.add_argument("--way", choices=("client", "follower", "stream"), default="client")
    parser.add_argument("--unflushed", action="store_true")
    options = parser.parse_args()
    if options.fault in NETWORK_FAULTS:
        enter_namespaces()
    with tempfile.TemporaryDirectory(prefix="taskraft-failover-") as folder:
        settings = {"TASKRAFT_AUTO_CREATE_TUBES": "true"}
        if options.entries:
            settings |= ONE_PUT_PER_ENTRY
        if options.unflushed:
            settings |= NEVER_FLUSH
        cluster = LocalCluster(3, Path(folder) / "cluster", settings)
        fault = LeaderFault(options.fault, cluster, Path(folder) / "faults")
        with cluster:
            asyncio.run(fill(cluster.wait_ready().address, options.entries))
            silences, longest = asyncio.run(measure(cluster, options.rounds, fault, options.way))
    print(summary(silences, longest, options.fault, options.way))


if __name__ == "__main__":
    main()
