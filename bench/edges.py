"""Compare the servers of the client port: the CPU time of a call with an empty handler, in µs.

Each server runs in a process of its own, and the servers take turns. The result is the CPU time of
the process of the server, so other programs disturb the result less than a throughput. The load
comes from this process, in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from taskraft_service.api.rpc.method_table import CallKind, ServedMethod
from taskraft_service.api.rpc.rpc_server import ServerLimits
from taskraft_service.api.rpc.server_context import ServerContext
from taskraft_service.process.services import chosen_server

EDGES: Final = ("grpc", "native")
CALLS: Final = 5_000
"""Number of calls, or of messages, of one measurement."""
WARM_UP: Final = 300
CLIENTS: Final = 32
MESSAGE: Final = b"x" * 150
"""About the size of a put of one task of 100 bytes."""
_UNARY: Final = "/taskraft.v1.TaskService/PutTasks"
_STREAM: Final = "/taskraft.v1.TaskService/Subscribe"


async def _answer(raw: bytes, _context: ServerContext) -> bytes:
    return raw


async def _converse(_requests: object, context: ServerContext) -> None:
    while isinstance(raw := await context.read(), bytes):
        await context.write(raw)


async def serve(edge: str) -> None:
    """Serve empty handlers until SIGTERM; print the port."""
    table = {
        _UNARY: ServedMethod(CallKind.UNARY, _answer, _converse),
        _STREAM: ServedMethod(CallKind.BIDIRECTIONAL, _converse, _converse),
    }
    server = chosen_server(edge, table, ServerLimits(10_000, 1_000))
    port = server.listen("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    await server.stop(1)


def cpu_seconds(process: int) -> float:
    """Return the CPU time of all threads of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def calls_at_once(channel: grpc.aio.Channel, count: int) -> None:
    """Send calls from concurrent clients, each with one call in flight."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_UNARY)

    async def client() -> None:
        for _ in range(count // CLIENTS):
            await call(MESSAGE, timeout=60)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def calls_in_sequence(channel: grpc.aio.Channel, count: int) -> None:
    """Send one call after the other."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_UNARY)
    for _ in range(count):
        await call(MESSAGE, timeout=60)


async def stream_messages(channel: grpc.aio.Channel, count: int) -> None:
    """Exchange messages on concurrent streams, each with one message in flight."""

    async def client() -> None:
        start: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(_STREAM)
        stream = start(timeout=600)
        for _ in range(count // CLIENTS):
            await stream.write(MESSAGE)
            await stream.read()
        await stream.done_writing()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


@dataclass(frozen=True)
class Workload:
    """A kind of calls."""

    name: str
    run: Callable[[grpc.aio.Channel, int], Awaitable[None]]


WORKLOADS: Final = (
    Workload("32 clients, one call each", calls_at_once),
    Workload("calls in sequence", calls_in_sequence),
    Workload("32 streams, one message each", stream_messages),
)


@asynccontextmanager
async def running(edge: str) -> AsyncIterator[tuple[int, grpc.aio.Channel]]:
    """Run a server; yield its process id and a channel."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.edges", "--serve", edge, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = b""
        while not port.strip().isdigit():  # lines of the log come before the port
            port = await process.stdout.readline()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{int(port)}") as channel:
            yield process.pid, channel
    finally:
        process.terminate()
        await process.wait()


async def measure(rounds: int) -> Mapping[tuple[str, str], list[float]]:
    """Return the µs of CPU time per call, by server and workload."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for edge in EDGES:
            async with running(edge) as (process, channel):
                for workload in WORKLOADS:
                    await workload.run(channel, WARM_UP)
                    before = cpu_seconds(process)
                    await workload.run(channel, CALLS)
                    used = (cpu_seconds(process) - before) * 1e6 / CALLS
                    found.setdefault((edge, workload.name), []).append(used)
    return found


def main() -> None:
    """Print a table of medians, or serve one server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=EDGES, help="only serve; for this program itself")
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
        return
    found = asyncio.run(measure(arguments.rounds))
    print(f"load of the machine: {os.getloadavg()[0]:.0f}")
    print("| CPU µs per call or message | grpc.aio | native edge | ratio |")
    print("| --- | --- | --- | --- |")
    for workload in WORKLOADS:
        grpc_us, native_us = (found[edge, workload.name] for edge in EDGES)
        ratio = statistics.median(native_us) / statistics.median(grpc_us)
        print(f"| {workload.name} | {_shown(grpc_us)} | {_shown(native_us)} | {ratio:.2f} |")


def _shown(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}..{max(values):.0f})"


if __name__ == "__main__":
    main()
