"""Send the most expensive request of each method to a full cluster, and print what they cost.

Three processes on loopback hold many objects. Another client puts one task every 20 ms. For each
method, the report has the duration of the call, the puts of the other client meanwhile, the runs of
the event loops of all nodes above 10 and above 100 ms of CPU time, and the longest run since the
start of the nodes. Other calls wait meanwhile, and are woken once a second::

    make bench ARGS="--only worst"                    # 10 000 of each object, 1 000 000 tasks
    python -m bench.worst --objects 1000 --tasks 100000 --only KickTasks PutTasks
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from bench.catch_up import BASELINE_PUTS, BackgroundPuts, latency_line
from bench.worst.calls import call, methods_of_the_contract
from bench.worst.requests import WORST
from bench.worst.stage import Size, Stage
from bench.worst.waiting_calls import Counts, WaitingCalls
from taskraft.v1 import task_service_pb2_grpc
from taskraft_service.limits import MESSAGE_BYTES_MAX
from tools.local_cluster import LocalCluster
from tools.local_node import Node

WAITING: Final = Counts(takes=200, streams=200, outcomes=200, watches=200, puts=1_000)
"""Calls that wait while the requests are measured. The limits permit more (10 000 waiting puts,
20 000 streams); the client that answers to the events shares the cores with the nodes."""
PUTS_AFTER: Final = 20
"""Number of puts of the other client that are awaited after a call, which may have left work."""
_LONG_RUNS: Final = re.compile(
    r'^taskraft_loop_long_runs_total\{.*over="(\w+)".*\} ([0-9.]+)', re.MULTILINE
)
_LONGEST_RUN: Final = re.compile(r"^taskraft_loop_longest_run_seconds (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class LongRuns:
    """Runs of the event loops of all nodes, since the start of the nodes."""

    over_10_ms: int
    over_100_ms: int
    longest_ms: float

    @classmethod
    def read(cls, nodes: Sequence[Node]) -> LongRuns:
        """Read the metrics of the nodes."""
        counts = {"10ms": 0, "100ms": 0}
        longest = 0.0
        for node in nodes:
            with urllib.request.urlopen(f"http://{node.http_address}/metrics") as page:
                text = page.read().decode()
            for over, count in _LONG_RUNS.findall(text):
                counts[over] += int(float(count))
            longest = max(longest, *map(float, _LONGEST_RUN.findall(text)))
        return cls(counts["10ms"], counts["100ms"], longest * 1_000)


async def measure(
    stage: Stage, nodes: Sequence[Node], puts: BackgroundPuts, only: list[str], at_once: int
) -> None:
    """Measure each method, and print one line for it.

    The request is sent ``at_once`` times at the same instant. A repeated request may be refused,
    for example because its leases have ended.
    """
    for method in methods_of_the_contract():
        if only and method.name not in only:
            continue
        request = await WORST[method.name](stage)
        await asyncio.to_thread(puts.wait_for, PUTS_AFTER)
        before, _ = LongRuns.read(nodes), puts.taken()
        began = time.perf_counter()
        calls = [call(stage.channel, method, request) for _ in range(at_once)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        outcome = _outcome(ended[0])
        took_ms = (time.perf_counter() - began) * 1_000
        took_puts_ms = puts.taken()
        await asyncio.to_thread(puts.wait_for, PUTS_AFTER)
        took_puts_ms += puts.taken()
        after = LongRuns.read(nodes)
        print(
            f"{method.name:18} {outcome:18} {took_ms:8.1f} ms;"
            f" runs: {after.over_10_ms - before.over_10_ms} over 10 ms,"
            f" {after.over_100_ms - before.over_100_ms} over 100 ms,"
            f" longest until now {after.longest_ms:.0f} ms; puts: {latency_line(took_puts_ms)}",
            flush=True,
        )


def _outcome(ended: object) -> str:
    """Return the status code of a call.

    Raises:
        BaseException: the call failed without a status.
    """
    if isinstance(ended, grpc.aio.AioRpcError):
        return ended.code().name
    if isinstance(ended, BaseException):
        raise ended
    return "OK"


async def run(
    leader: Node, nodes: Sequence[Node], size: Size, only: list[str], at_once: int
) -> None:
    """Fill the cluster, and measure the methods."""
    options = (("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),)
    async with grpc.aio.insecure_channel(leader.address, options=options) as channel:
        stage = Stage(channel, size)
        began = time.monotonic()
        await stage.fill()
        await stage.create_tube("backlog")
        waiting = WaitingCalls(stage, WAITING)
        await waiting.begin()
        print(f"filled in {time.monotonic() - began:.0f} s; waiting: {WAITING}", flush=True)
        waking = asyncio.ensure_future(waiting.go_on())
        with grpc.insecure_channel(leader.address) as other:
            puts = BackgroundPuts(task_service_pb2_grpc.TaskServiceStub(other))
            with puts.going_on():
                await asyncio.to_thread(puts.wait_for, BASELINE_PUTS)
                print(f"puts before: {latency_line(puts.taken())}", flush=True)
                await measure(stage, nodes, puts, only, at_once)
        waking.cancel()
        with suppress(asyncio.CancelledError):
            await waking
        print(f"{waiting.waiting()} of {WAITING.calls} waiting calls did not fail")
        await waiting.end()


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requests, and print the report.

    Args:
        words: the command line; None: that of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=WORST, default=[], help="measure some methods")
    parser.add_argument("--objects", type=int, default=10_000, help="number of each object")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--at-once", type=int, default=1, help="number of equal calls at once")
    arguments = parser.parse_args(words)
    objects = arguments.objects
    size = Size(objects, objects, objects, objects, arguments.tasks)
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-bench-") as folder,
        LocalCluster(3, Path(folder, "cluster")) as cluster,
    ):
        leader = cluster.wait_ready()
        asyncio.run(run(leader, cluster.nodes, size, arguments.only, arguments.at_once))
        after = cluster.wait_ready()
        print("the same leader" if after is leader else "ANOTHER LEADER")


if __name__ == "__main__":
    main()
