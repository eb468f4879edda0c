"""Measure the web console on a full cluster: time of each page, and the cost of an open overview.

Three nodes on loopback hold 10 000 tubes, 1 000 000 tasks, and sessions, schedules and groups. The
console is a process of its own. The time of a page is that of a whole request, without a browser;
the CPU time of a page is that of the console, and does not depend on other programs. The cost of an
open overview is the CPU time of each node and of the console while 1 or 50 browsers have the
overview open, minus that of the same cluster without a viewer, which is measured before and after.

    python -m bench.console                              # 10 000 tubes, 1 000 000 tasks
    python -m bench.console --tubes 1000 --tasks 100000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import grpc.aio

from bench.idle_cluster import account_of, accounts
from bench.machine import resident_kib
from bench.worst.stage import FILLED, Size, Stage
from tools.local_cluster import LocalCluster

READS: Final = 20
"""Number of requests of each page."""
SETTLE_SECONDS: Final = 15.0
"""Time after the filling, and after the last page, before the CPU time is read, in seconds."""
PAGE_GOAL_MS: Final = 300
OVERVIEW_GOAL_MS: Final = 150
NODE_GOAL_PERCENT: Final = 1.0
MEMORY_GOAL_MIB: Final = 120
VIEWERS: Final = (0, 1, 50, 0)
"""Numbers of browsers with an open overview, in the order of the measurements."""
PAGES: Final = (
    "/",
    "/tubes",
    "/tubes?sort=ready&page=2",
    f"/tubes/{FILLED}",
    f"/tubes/{FILLED}/tasks/1",
    f"/tasks?tube={FILLED}&where=id+%3E+1000",
    "/failures",
    "/workers",
    "/workflows",
    "/schedules",
    "/cluster",
    "/settings",
    "/audit",
    "/rights",
    "/bulk",
    f"/history?tube={FILLED}",
)


@contextlib.contextmanager
def running_console(target: str) -> Iterator[tuple[int, str]]:
    """Run a console; yield the id of its process and its address."""
    command = [sys.executable, "-m", "taskraft", "console"]
    command += ["--target", target, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("console: ").strip().rstrip("/")
            yield process.pid, address
        finally:
            process.terminate()


def read(address: str) -> float:
    """Return the time of one request in ms."""
    begun = time.perf_counter()
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - own console
        answer.read()
    return (time.perf_counter() - begun) * 1_000


def measure_pages(console: int, address: str) -> None:
    """Print the time of each page, the first request apart."""
    for page in PAGES:
        first = read(address + page)
        before = account_of(console).cpu_ns
        later = [read(address + page) for _ in range(READS)]
        cpu_ms = (account_of(console).cpu_ns - before) / READS / 1e6
        goal = OVERVIEW_GOAL_MS if page == "/" else PAGE_GOAL_MS
        median = statistics.median(later)
        print(
            f"{page:42} first {first:6.0f} ms, median of {READS} {median:6.1f} ms, "
            f"longest {max(later):6.1f} ms, goal {goal} ms; {cpu_ms:5.1f} ms of CPU time",
            flush=True,
        )


def percents(cluster: LocalCluster, console: int, seconds: float) -> dict[str, float]:
    """Return the CPU time of the nodes and of the console during some time, in % of a core."""
    before = {**accounts(cluster), "console": account_of(console)}
    begun = time.monotonic()
    time.sleep(seconds)
    after = {**accounts(cluster), "console": account_of(console)}
    spent = time.monotonic() - begun
    return {name: (one.cpu_ns - before[name].cpu_ns) / spent / 1e7 for name, one in after.items()}


@contextlib.contextmanager
def opened_overviews(address: str, viewers: int) -> Iterator[None]:
    """Keep the overview open in some browsers, which read all that the console sends."""
    place = urlsplit(address)
    request = f"GET {place.path}/live?page=/ HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(viewers):
            browser = stack.enter_context(
                socket.create_connection((str(place.hostname), int(place.port or 80)))
            )
            stack.callback(browser.shutdown, socket.SHUT_RDWR)
            browser.sendall(request.encode())
            threading.Thread(target=receive_all, args=(browser,)).start()
        yield


def receive_all(browser: socket.socket) -> None:
    """Receive until the connection is closed."""
    with contextlib.suppress(OSError):  # closed by another thread
        while browser.recv(65_536):
            pass


def measure_overview(cluster: LocalCluster, console: int, address: str, seconds: float) -> None:
    """Print the cost of an open overview."""
    print(f"the overview open for {seconds:.0f} s; goal: {NODE_GOAL_PERCENT} % more for a node")
    for viewers in VIEWERS:
        time.sleep(SETTLE_SECONDS)
        with opened_overviews(address, viewers):
            spent = percents(cluster, console, seconds)
        costs = ", ".join(f"{name} {percent:.2f} %" for name, percent in spent.items())
        print(f"in {viewers} browsers: {costs} of a core", flush=True)


async def fill(target: str, size: Size) -> None:
    """Fill the cluster."""
    async with grpc.aio.insecure_channel(target) as channel:
        await Stage(channel, size).fill()


def main() -> None:
    """Parse the arguments, measure, print lines."""
    parser = argparse.ArgumentParser(description="Measure the web console on a full cluster.")
    parser.add_argument("--tubes", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=1_000, help="sessions, schedules, groups")
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    size = Size(given.tubes, given.objects, given.objects, given.objects, given.tasks)
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-console-") as folder,
        LocalCluster(3, Path(folder) / "cluster") as cluster,
    ):
        leader = cluster.wait_ready()
        asyncio.run(fill(leader.address, size))
        print(f"{size.tubes:,} tubes, {size.tasks:,} tasks, {given.objects:,} of other objects")
        time.sleep(SETTLE_SECONDS)
        with running_console(cluster.target) as (console, address):
            measure_pages(console, address)
            measure_overview(cluster, console, address, given.seconds)
            mib = resident_kib(console) / 1_024
            print(f"memory of the console: {mib:.0f} MiB, goal {MEMORY_GOAL_MIB} MiB")


if __name__ == "__main__":
    main()
