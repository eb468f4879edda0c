"""Measure a whole node with a very large backlog: memory, disk, restart, cost of a take.

One process on loopback is filled over gRPC, killed, and started again: it opens RocksDB and replays
the log since the last flush. Then tasks are taken and acknowledged from the backlog and, for
comparison, from a tube without a backlog::

    python -m bench.node_backlog                    # 200 000 tasks
    python -m bench.node_backlog --tasks 5000000    # target size
    python -m bench.node_backlog --tubes 10000      # additional tubes with one task each
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections import deque
from pathlib import Path
from statistics import median
from typing import Final

import grpc

from bench.machine import TICKS_PER_SECOND, process_ticks, resident_kib
from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster
from tools.local_node import Node

BACKLOG: Final = "backlog"
EMPTY: Final = "empty"
PUT_TASKS: Final = 1_000
PUTS_IN_FLIGHT: Final = 4
TAKE_TASKS: Final = 100
TAKES_PER_ROUND: Final = 100
ROUNDS: Final = 7
COMPARED_TASKS: Final = ROUNDS * TAKES_PER_ROUND * TAKE_TASKS
CALL_SECONDS_MAX: Final = 60
PAYLOAD_BYTES: Final = 100
DIFFERENT_PUTS: Final = 64
MIB: Final = 1024 * 1024


class Client:
    """Calls one node; encodes few puts, so that the node is the bottleneck."""

    def __init__(self, node: Node) -> None:
        self._channel = grpc.insecure_channel(node.address)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(self._channel)
        self.tubes = tube_service_pb2_grpc.TubeServiceStub(self._channel)
        self._put_raw: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            "/taskraft.v1.TaskService/PutTasks"
        )

    def create(self, name: str) -> None:
        """Create a tube."""
        tube = tube_service_pb2.Tube(name=name, kind=tube_service_pb2.Tube.FIFOTTL)
        self.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))

    def put(self, tube: str, tasks: int) -> None:
        """Put `tasks` tasks with several calls in flight."""
        in_flight: deque[grpc.Future[bytes]] = deque()
        sizes = [PUT_TASKS] * (tasks // PUT_TASKS) + [tasks % PUT_TASKS] * (tasks % PUT_TASKS > 0)
        requests = [put_request(tube, size) for size in sizes[-DIFFERENT_PUTS:]]
        for number in range(len(sizes)):
            request = requests[(number - len(sizes)) % len(requests)]
            if len(in_flight) >= PUTS_IN_FLIGHT:
                in_flight.popleft().result()
            in_flight.append(self._put_raw.future(request, timeout=CALL_SECONDS_MAX))
        for call in in_flight:
            call.result()

    def take(self, tube: str, tasks: int) -> list[int]:
        """Take tasks; return their tokens."""
        request = pb.TakeTasksRequest(sources=[pb.TakeSource(tube=tube)], tasks_max=tasks)
        answer = self.tasks.TakeTasks(request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)
        return [task.token for task in answer.tasks]

    def ack(self, tokens: list[int]) -> None:
        """Acknowledge tasks."""
        settlement = pb.Settlement(tokens=tokens, ack=pb.Settlement.Ack())
        self.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def put_request(tube: str, tasks: int) -> bytes:
    """Return a put with random payloads, which do not compress."""
    specs = [task_pb2.TaskSpec(payload=os.urandom(PAYLOAD_BYTES)) for _ in range(tasks)]
    return pb.PutTasksRequest(tube=tube, tasks=specs).SerializeToString()


def fill(node: Node, tasks: int, tubes: int) -> None:
    """Put the backlog, and create the additional tubes."""
    client = Client(node)
    for name in (BACKLOG, EMPTY):
        client.create(name)
    for number in range(tubes):
        client.create(f"tube{number}")
        client.put(f"tube{number}", 1)
    began, ticks = time.perf_counter(), process_ticks(node.pid)
    client.put(BACKLOG, tasks)
    put_s, cpu_s = time.perf_counter() - began, (process_ticks(node.pid) - ticks) / TICKS_PER_SECOND
    client.close()
    print(
        f"put {tasks} tasks of {PAYLOAD_BYTES} bytes: {put_s:.1f} s, {cpu_s / tasks * 1e6:.1f} µs "
        f"of CPU per task; {memory(node)}; {disk(node)}",
        flush=True,
    )


def restart(cluster: LocalCluster, node: Node, *, is_crash: bool) -> None:
    """Stop the node and start it again; print the time until a task can be taken."""
    if is_crash:
        node.kill()
    else:
        node.stop(CALL_SECONDS_MAX * 1_000)
    began = time.perf_counter()
    node.start()
    cluster.wait_ready(CALL_SECONDS_MAX * 1_000)
    ready_s = time.perf_counter() - began
    client = Client(node)
    tokens = client.take(BACKLOG, 1)
    first_s = time.perf_counter() - began
    cpu_s = process_ticks(node.pid) / TICKS_PER_SECOND
    assert len(tokens) == 1
    client.ack(tokens)
    client.close()
    print(
        f"{'SIGKILL' if is_crash else 'SIGTERM'} and start: serves after {ready_s:.2f} s, first "
        f"task after {first_s:.2f} s, {cpu_s:.2f} s of CPU; {memory(node)}; {disk(node)}",
        flush=True,
    )


def compare(node: Node) -> None:
    """Take and acknowledge from both tubes alternately; print CPU and wall time per task."""
    client = Client(node)
    spent: dict[str, list[tuple[float, float]]] = {BACKLOG: [], EMPTY: []}
    for _ in range(ROUNDS):
        for tube, rounds in spent.items():
            if tube == EMPTY:
                client.put(EMPTY, TAKE_TASKS * TAKES_PER_ROUND)
            ticks, took_s = process_ticks(node.pid), 0.0
            for _ in range(TAKES_PER_ROUND):
                began = time.perf_counter()
                tokens = client.take(tube, TAKE_TASKS)
                took_s += time.perf_counter() - began
                assert len(tokens) == TAKE_TASKS
                client.ack(tokens)
            cpu_s = (process_ticks(node.pid) - ticks) / TICKS_PER_SECOND
            tasks = TAKE_TASKS * TAKES_PER_ROUND
            rounds.append((cpu_s / tasks * 1e6, took_s / TAKES_PER_ROUND * 1e3))
    client.close()
    cpu = {tube: median(cpu_us for cpu_us, _ in rounds) for tube, rounds in spent.items()}
    took = {tube: median(took_ms for _, took_ms in rounds) for tube, rounds in spent.items()}
    for tube in spent:
        print(
            f"take + ack in batches of {TAKE_TASKS}, {tube}: {cpu[tube]:.1f} µs of the node's CPU "
            f"per task, {took[tube]:.2f} ms per take"
        )
    print(
        f"CPU ratio {cpu[BACKLOG] / cpu[EMPTY]:.2f}, wall time ratio of a take "
        f"{took[BACKLOG] / took[EMPTY]:.2f}; {memory(node)}",
        flush=True,
    )


def scrape(node: Node) -> None:
    """Print the cost of a scrape of the metrics."""
    ticks, began, size = process_ticks(node.pid), time.perf_counter(), 0
    for _ in range(ROUNDS):
        with urllib.request.urlopen(f"http://{node.http_address}/metrics") as answer:
            size = len(answer.read())
    took_ms = (time.perf_counter() - began) / ROUNDS * 1e3
    cpu_ms = (process_ticks(node.pid) - ticks) / TICKS_PER_SECOND / ROUNDS * 1e3
    print(f"a scrape: {size} bytes, {took_ms:.0f} ms, {cpu_ms:.0f} ms of CPU", flush=True)


def memory(node: Node) -> str:
    """Return the current and the peak resident memory of the node's process."""
    status = Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    assert peak is not None
    return f"resident {resident_kib(node.pid) / 1024:.0f} MiB (peak {int(peak[1]) / 1024:.0f})"


def disk(node: Node) -> str:
    """Return the disk usage of the parts of the node's data directory."""
    data = Path(node.environment["TASKRAFT_DATA_DIR"])
    sizes = {
        part.name: sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        for part in sorted(data.iterdir())
        if part.is_dir()
    }
    return "disk: " + ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in sizes.items())


def main() -> int:
    """Measure the node with the backlog, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=200_000)
    parser.add_argument("--tubes", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.tasks <= COMPARED_TASKS:
        parser.error(
            f"--tasks: must be more than {COMPARED_TASKS}, because that many tasks are taken"
        )
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-") as folder,
        LocalCluster(1, Path(folder) / "node") as cluster,
    ):
        (node,) = cluster.nodes
        print(f"an empty node: {memory(node)}")
        fill(node, arguments.tasks, arguments.tubes)
        restart(cluster, node, is_crash=True)
        compare(node)
        scrape(node)
        restart(cluster, node, is_crash=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
