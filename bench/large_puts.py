"""Measure the peak memory of a node while large puts are in flight.

Each put is a call of its own, over a plain stub, because the Python client sends puts in batches.
The fsyncs of all nodes take longer, so that the puts are in flight at the same time. The growth of
the memory, divided by the payload bytes in flight, is the factor of copies: buffers of gRPC,
request, command, entry, and frames to the peers.

    python -m bench.large_puts [--puts 60] [--payload-bytes 1000000] [--delay-ms 200]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import uuid
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from taskraft.v1 import (
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    tube_service_pb2,
    tube_service_pb2_grpc,
)
from tools.local_cluster import LocalCluster
from tools.sync_fault import SyncFaults

MIB: Final = 1 << 20
TUBE: Final = "large"


def memory_kib(pid: int, name: str) -> int:
    """Return a size in the status of a process, in KiB: VmRSS now, or VmHWM at the peak."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"{name}:\s+(\d+)", status)
    assert found is not None
    return int(found[1])


async def put_all(address: str, puts: int, payload_bytes: int) -> int:
    """Put tasks at the same time, each with its own call; return the number of refused calls."""
    tasks = [task_pb2.TaskSpec(payload=b"x" * payload_bytes)]
    async with grpc.aio.insecure_channel(address) as channel:
        tubes = tube_service_pb2_grpc.TubeServiceStub(channel)
        tube = tube_service_pb2.Tube(name=TUBE, kind=tube_service_pb2.Tube.FIFO)
        await tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        calls = [
            stub.PutTasks(
                task_service_pb2.PutTasksRequest(
                    tube=TUBE, tasks=tasks, request_id=str(uuid.uuid4())
                )
            )
            for _ in range(puts)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, grpc.aio.AioRpcError):
            raise answer
    return sum(isinstance(answer, grpc.aio.AioRpcError) for answer in answers)


def main() -> int:
    """Measure the peak memory, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--puts", type=int, default=60)
    parser.add_argument("--payload-bytes", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--delay-ms", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(arguments.nodes, Path(folder) / "cluster")
        faults = SyncFaults(cluster, Path(folder))
        with cluster:
            leader = cluster.wait_ready()
            for node in cluster.nodes:
                faults.delay(node, arguments.delay_ms)
            idle = {node.name: memory_kib(node.pid, "VmRSS") for node in cluster.running()}
            refused = asyncio.run(put_all(leader.address, arguments.puts, arguments.payload_bytes))
            if refused == arguments.puts:
                raise SystemExit("all puts were refused; choose smaller payloads or fewer puts")
            in_flight_mib = (arguments.puts - refused) * arguments.payload_bytes / MIB
            print(f"{arguments.puts} puts, {refused} refused, {in_flight_mib:.0f} MiB in flight")
            for node in cluster.running():
                peak_mib = (memory_kib(node.pid, "VmHWM") - idle[node.name]) / 1024
                now_mib = (memory_kib(node.pid, "VmRSS") - idle[node.name]) / 1024
                role = "leader" if node.name == leader.name else "follower"
                print(
                    f"{node.name} ({role}): idle {idle[node.name] / 1024:.0f} MiB,"
                    f" peak {peak_mib:+.0f} MiB, {peak_mib / in_flight_mib:.1f} x;"
                    f" after the puts {now_mib:+.0f} MiB",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
