"""Compare workers of taskraft, dramatiq and Celery with the same no-op task: `make bench-peers`.

Each worker is one process with 8 threads. Throughput: a worker starts with a backlog. Latency: from
the put to the start of the handler, at a moderate rate. The brokers of dramatiq and Celery are one
Redis without replicas, with and without an fsync for each write.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.machine import TICKS_PER_SECOND, process_ticks
from taskraft import Client
from tools.free_addresses import free_addresses
from tools.local_cluster import LocalCluster

THREADS: Final = 8
MORE_THREADS: Final = 64
"""Number of threads of the second row of taskraft."""
PROCESSES: Final = 2
"""Number of processes of the last row of taskraft, whose own CPU time does not count."""
RATE: Final = 200
WARM_UP_S: Final = 5
"""Time after the first put at a rate, in which the worker starts; its tasks are left out."""
TIMEOUT_S: Final = 120
FLUSHES: Final[Mapping[str, Sequence[str]]] = {
    "no log": ("--appendonly", "no"),
    "fsync always": ("--appendonly", "yes", "--appendfsync", "always"),
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: addresses for workers and producers, and its processes."""

    name: str
    environment: Mapping[str, str]
    pids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Framework:
    """Commands of a framework: the worker, and the producer without number and rate."""

    name: str
    worker: Sequence[str]
    producer: Sequence[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of one run."""

    tasks: int
    seconds: float
    worker_cpu: float
    broker_cpu: float
    latencies_ms: Sequence[float]


class WorkerFailed(Exception):
    """A worker did not handle its tasks; the message has the end of its log."""


def frameworks(python: Path) -> Iterator[Framework]:
    """Yield the frameworks with a Redis; print which frameworks are not installed."""
    options = {
        "dramatiq": ("--processes", "1", "--threads", str(THREADS)),
        "celery": ("worker", "--pool", "threads", "--concurrency", str(THREADS), "-l", "WARNING"),
    }
    for name, given in options.items():
        command, module = python.parent / name, f"bench.peers.{name}_tasks"
        if not command.exists():
            print(f"skipped: {name} is not installed beside {python}; run make bench-peers")
            continue
        worker = [str(command), *(("-A", module) if name == "celery" else (module,)), *given]
        yield Framework(name, worker, [str(python), "-m", module])


def own_frameworks() -> Iterator[Framework]:
    """Yield taskraft with threads, with coroutines and with processes."""
    command = str(Path(sys.executable).parent / "taskraft")
    module = "bench.peers.taskraft_tasks"
    rows = (
        ("thread", f"{THREADS} threads", "--threads", str(THREADS)),
        ("thread", f"{MORE_THREADS} threads", "--threads", str(MORE_THREADS)),
        ("coroutine", "100 coroutines"),
        ("process", f"{PROCESSES} processes", "--processes", str(PROCESSES)),
    )
    for task, pool, *options in rows:
        app = "process_app" if task == "process" else "app"
        worker = [command, "worker", f"{module}:{app}", "--only", task, *options]
        producer = [sys.executable, "-m", module, task]
        yield Framework(f"taskraft, {pool}", [*worker, "--log-level", "warning"], producer)


@contextmanager
def redis(program: str, folder: Path, flush: str) -> Iterator[Broker]:
    """Run a Redis server as the broker."""
    address = free_addresses(1)[0]
    port = address.rpartition(":")[2]
    given = ["--port", port, "--bind", "127.0.0.1", "--save", "", *FLUSHES[flush]]
    folder.mkdir()
    with subprocess.Popen(
        [program, *given, "--dir", str(folder)], stdout=subprocess.DEVNULL
    ) as one:
        url = f"redis://127.0.0.1:{port}/0"
        yield Broker(f"one Redis, {flush}", {"PEER_REDIS": url}, [one.pid])
        one.terminate()


@contextmanager
def cluster(nodes: int, folder: Path) -> Iterator[Broker]:
    """Run a cluster of taskraft as the broker."""
    with LocalCluster(nodes, folder) as running, Client(running.target) as client:
        client.create_tube("default")
        name = "1 node" if nodes == 1 else f"{nodes} nodes"
        pids = [node.pid for node in running.nodes]
        yield Broker(name, {"TASKRAFT_TARGET": running.target}, pids)


def put(framework: Framework, broker: Broker, tasks: int, rate: int) -> None:
    """Put tasks from a process of its own."""
    environment = os.environ | broker.environment | {"PYTHONPATH": "."}
    command = [*framework.producer, str(tasks), str(rate)]
    subprocess.run(command, env=environment, check=True)


def measure(framework: Framework, broker: Broker, folder: Path, tasks: int, rate: int) -> Measured:
    """Handle tasks that were put before (rate 0), or that arrive at a rate."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    environment = {"PEER_TASKS": str(tasks), "PEER_RESULT": str(result), "PYTHONPATH": "."}
    if not rate:
        put(framework, broker, tasks, 0)
    before = sum(map(process_ticks, broker.pids))
    log = folder / "worker.log"
    with log.open("w") as output:
        worker = subprocess.Popen(
            framework.worker,
            env=os.environ | broker.environment | environment,
            stdout=output,
            stderr=output,
        )
    try:
        if rate:
            put(framework, broker, tasks, rate)
        wait_for(result.exists, worker, log)
    finally:
        worker.terminate()
        worker.wait(TIMEOUT_S)
    broker_cpu = (sum(map(process_ticks, broker.pids)) - before) / TICKS_PER_SECOND
    record = json.loads(result.read_text())
    return Measured(
        tasks, record["seconds"], record["cpu_seconds"], broker_cpu, record["latencies_ms"]
    )


def wait_for(is_done: Callable[[], bool], worker: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a worker is done.

    Raises:
        WorkerFailed: the worker ended, or took too long.
    """
    until = time.monotonic() + TIMEOUT_S
    while not is_done():
        if worker.poll() is not None or time.monotonic() > until:
            raise WorkerFailed(f"{worker.args!r}: {log.read_text()[-2_000:]}")
        time.sleep(0.05)


def report(framework: Framework, broker: Broker, arguments: argparse.Namespace) -> None:
    """Print one row; the throughput is the median of several rounds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds = [
            measure(framework, broker, folder, arguments.tasks, 0) for _ in range(arguments.rounds)
        ]
        at_rate = measure(framework, broker, folder, RATE * (arguments.seconds + WARM_UP_S), RATE)
    rates = sorted(one.tasks / one.seconds for one in rounds)
    worker = median(one.worker_cpu / one.tasks for one in rounds) * 1e6
    brokers = median(one.broker_cpu / one.tasks for one in rounds) * 1e6
    late = sorted(at_rate.latencies_ms[RATE * WARM_UP_S :])
    low, high = late[len(late) // 2], late[len(late) * 99 // 100]
    shown = f"{median(rates):,.0f} ({rates[0]:,.0f}..{rates[-1]:,.0f})"
    cells = (framework.name, broker.name, shown, f"{low:.1f}", f"{high:.1f}")
    print("|", " | ".join((*cells, f"{worker:.0f}", f"{brokers:.0f}")), "|", flush=True)


def main() -> None:
    """Measure the workers of each library, and print the table."""
    parser = argparse.ArgumentParser(description="Compare workers with the same no-op task.")
    parser.add_argument("--python", type=Path, default=Path(".venv-peers/bin/python"))
    parser.add_argument("--tasks", type=int, default=5_000, help="backlog (5,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10, help="seconds at 200 tasks/s (10)")
    arguments = parser.parse_args()
    print("| worker | broker | tasks/s | p50 ms | p99 ms | worker us/task | broker us/task |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for nodes in (1, 3):
            with cluster(nodes, Path(name) / f"bench{nodes}") as broker:
                for framework in own_frameworks():
                    report(framework, broker, arguments)
        beside = arguments.python.absolute().parent / "redis-server"
        program = shutil.which("redis-server") or (str(beside) if beside.exists() else "")
        if not program:
            print("skipped: there is no redis-server; run make bench-peers, or install one")
            return
        for at, flush in enumerate(FLUSHES):
            for framework in frameworks(arguments.python.absolute()):
                with redis(program, Path(name) / f"redis{at}{framework.name}", flush) as broker:
                    report(framework, broker, arguments)


if __name__ == "__main__":
    main()
