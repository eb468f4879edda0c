"""Send the most expensive request of each method to a full cluster, and print what they cost.

Three processes on loopback hold many objects. Another client puts one task every 20 ms. For each
method, the report has the duration of the call, the puts of the other client meanwhile, and the
runs of the leader's event loop above 10 and above 100 ms of CPU time::

    python -m bench.worst                             # 10 000 of each object, 1 000 000 tasks
    python -m bench.worst --objects 1000 --tasks 100000 --only KickTasks PutTasks
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from bench.catch_up import BASELINE_PUTS, BackgroundPuts, latency_line
from bench.worst.calls import call, methods_of_the_contract
from bench.worst.requests import WORST
from bench.worst.stage import Size, Stage
from taskraft.v1 import task_service_pb2_grpc
from taskraft_service.limits import MESSAGE_BYTES_MAX
from tools.local_cluster import LocalCluster
from tools.local_node import Node

PUTS_AFTER: Final = 5
"""Number of puts of the other client that are awaited after a call, which may have left work."""
_LONG_RUNS: Final = re.compile(
    r'^taskraft_loop_long_runs_total\{.*over="(\w+)".*\} ([0-9.]+)', re.MULTILINE
)


def long_runs(node: Node) -> dict[str, int]:
    """Return the number of long runs of a node's event loop by their limit."""
    with urllib.request.urlopen(f"http://{node.http_address}/metrics") as page:
        text = page.read().decode()
    counts = {"10ms": 0, "100ms": 0}
    for over, count in _LONG_RUNS.findall(text):
        counts[over] += int(float(count))
    return counts


async def measure(stage: Stage, leader: Node, puts: BackgroundPuts, only: list[str]) -> None:
    """Measure each method, and print one line for it."""
    for method in methods_of_the_contract():
        if only and method.name not in only:
            continue
        request = await WORST[method.name](stage)
        await asyncio.to_thread(puts.wait_for, PUTS_AFTER)
        before, _ = long_runs(leader), puts.taken()
        began = time.perf_counter()
        outcome = "OK"
        try:
            await call(stage.channel, method, request)
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name
        took_ms = (time.perf_counter() - began) * 1_000
        await asyncio.to_thread(puts.wait_for, PUTS_AFTER)
        after = long_runs(leader)
        runs = ", ".join(f"{after[over] - before[over]} over {over}" for over in before)
        print(
            f"{method.name:18} {outcome:18} {took_ms:8.1f} ms; runs: {runs};"
            f" longest put {max(puts.taken()):.1f} ms",
            flush=True,
        )


async def run(leader: Node, size: Size, only: list[str]) -> None:
    """Fill the cluster, and measure the methods."""
    options = (("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),)
    async with grpc.aio.insecure_channel(leader.address, options=options) as channel:
        stage = Stage(channel, size)
        began = time.monotonic()
        await stage.fill()
        await stage.create_tube("backlog")
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        with grpc.insecure_channel(leader.address) as other:
            puts = BackgroundPuts(task_service_pb2_grpc.TaskServiceStub(other))
            with puts.going_on():
                await asyncio.to_thread(puts.wait_for, BASELINE_PUTS)
                print(f"puts before: {latency_line(puts.taken())}", flush=True)
                await measure(stage, leader, puts, only)


def main() -> None:
    """Measure the requests, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=WORST, default=[], help="measure some methods")
    parser.add_argument("--objects", type=int, default=10_000, help="number of each object")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    arguments = parser.parse_args()
    objects = arguments.objects
    size = Size(objects, objects, objects, objects, arguments.tasks)
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-bench-") as folder,
        LocalCluster(3, Path(folder, "cluster")) as cluster,
    ):
        leader = cluster.wait_ready()
        asyncio.run(run(leader, size, arguments.only))
        after = cluster.wait_ready()
        print("the same leader" if after is leader else "ANOTHER LEADER")


if __name__ == "__main__":
    main()
