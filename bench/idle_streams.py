"""Measure the cost of idle Subscribe streams for a node: memory, CPU time, latency of a put.

The load generator holds the streams; no task is put, so the
connections carry nothing but keepalive pings.

    make load
    python -m bench.idle_streams [--streams 10000] [--connections 100] [--seconds 120]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.idle_cluster import account_of
from bench.load_generator import BINARY, LoadFailed
from bench.machine import resident_kib
from bench.servers import Server, scrape
from tools.local_cluster import LocalCluster

STREAM_KIB_GOAL: Final = 50.0
CORE_PERCENT_GOAL: Final = 1.0
SETTLE_SECONDS: Final = 10.0
"""Time before each window, in seconds; long enough for the first heartbeat of each stream."""
IDLE_SECONDS: Final = 20.0
"""Length of the window without streams, in seconds."""


@dataclass(slots=True, frozen=True)
class Moment:
    """The resources that a node has used up to one instant."""

    seconds: float
    cpu_ns: int
    resident_kib: int
    streams: int


def moment_of(server: Server) -> Moment:
    """Return the resources that a node has used up to now."""
    streams = int(scrape([server])["taskraft_streams"])
    return Moment(
        time.monotonic(), account_of(server.pid).cpu_ns, resident_kib(server.pid), streams
    )


def core_percent(begin: Moment, end: Moment) -> float:
    """Return the CPU time of a node between two instants, in percent of a core."""
    return (end.cpu_ns - begin.cpu_ns) / (end.seconds - begin.seconds) / 1e7


def hold(command: Sequence[str], server: Server) -> tuple[list[Moment], dict[str, float]]:
    """Run the load generator; return the node's counters around its window, and its report.

    Raises:
        LoadFailed: the generator failed.
    """
    moments, report = [], None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "result":
                report = event
            else:
                moments.append(moment_of(server))
        complaint = process.stderr.read()
    if report is None:
        raise LoadFailed(complaint.strip() or str(process.returncode))
    return moments, report


def measure(streams: int, connections: int, seconds: float) -> str:
    """Hold the streams on one node; return the lines with the results."""
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-streams-") as folder,
        LocalCluster(1, Path(folder) / "cluster") as cluster,
    ):
        (node,) = cluster.nodes
        server = Server(node.pid, node.http_address)
        time.sleep(SETTLE_SECONDS)
        started = moment_of(server)
        time.sleep(IDLE_SECONDS)
        idle = moment_of(server)
        command = [
            *(str(BINARY), "-addresses", node.address, "-workload", "idle", "-timeout", "60s"),
            *("-clients", str(streams), "-connections", str(connections), "-drop=false"),
            *("-warm-up", f"{SETTLE_SECONDS}s", "-duration", f"{seconds}s"),
        ]
        (begin, end), report = hold(command, server)
    without, percent = core_percent(started, idle), core_percent(begin, end)
    kib = (end.resident_kib - idle.resident_kib) / streams
    heartbeats = report["heartbeats"] / report["seconds"]
    return f"""\
{end.streams} idle streams over {connections} connections, opened in {report["open_seconds"]:.1f} s
ended: {report["ended"]} {report.get("reason", "")}
memory: {kib:.1f} KiB per stream (goal {STREAM_KIB_GOAL:.0f} KiB)
CPU: {percent:.2f} % of a core over {report["seconds"]:.0f} s (goal {CORE_PERCENT_GOAL:.0f} %), \
{without:.2f} % without streams
heartbeats: {heartbeats:.1f} per second
next put: {report["next_put_us"] / 1000:.1f} ms"""


def main() -> None:
    """Parse the arguments, measure, print the results."""
    parser = argparse.ArgumentParser(description="Measure what idle streams cost a node.")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120)
    arguments = parser.parse_args()
    print(measure(arguments.streams, arguments.connections, arguments.seconds))


if __name__ == "__main__":
    main()
