"""Add a new member to a full cluster under load; measure its catch-up and concurrent puts.

Three processes on loopback are filled with tasks, and their log is trimmed. Then a client puts one
task every 20 ms, and a fourth node with an empty directory joins: it receives a snapshot, and then
the log entries after the snapshot. The report has the time until the new member has applied the
entries that the leader had, the size of the new member's state, and the latency of the puts before
and during the catch-up::

    python -m bench.catch_up                      # 100 000 tasks
    python -m bench.catch_up --tasks 1000000
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from bench.percentiles import median_and_p99
from taskraft.v1 import task_pb2, task_service_pb2_grpc, tube_service_pb2, tube_service_pb2_grpc
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster
from tools.local_node import Node, NodeFailed

TUBE: Final = "backlog"
BATCH_TASKS: Final = 1000
PAYLOAD_BYTES: Final = 100
PUT_EVERY_MS: Final = 20
BASELINE_PUTS: Final = 200
CATCH_UP_SECONDS_MAX: Final = 900
PUT_SECONDS_MAX: Final = 60

SETTINGS: Final = {
    # Small segments, so that the log is trimmed and no longer reaches back to its start.
    "TASKRAFT_LOG_SEGMENT_BYTES": str(1 << 20),
    "TASKRAFT_LOG_FLUSH_BYTES": str(4 << 20),
    "TASKRAFT_LOG_KEPT_ENTRIES": "10",
}


@dataclass(slots=True, frozen=True)
class Report:
    """Result of the measurement; times in ms."""

    tasks: int
    catch_up_ms: int
    state_bytes: int
    """Size of the new member's state on disk."""
    put_ms_before: Sequence[float]
    put_ms_during: Sequence[float]

    def __str__(self) -> str:
        """Return the report as lines of text."""
        return "\n".join(
            (
                f"{self.tasks} tasks, new member caught up after {self.catch_up_ms} ms",
                f"size of its state: {self.state_bytes / 1e6:.1f} MB",
                f"put before: {latency_line(self.put_ms_before)}",
                f"put during: {latency_line(self.put_ms_during)}",
            )
        )


def latency_line(found: Sequence[float]) -> str:
    """Return median, 99th percentile and maximum of latencies in ms."""
    median, p99 = median_and_p99(found)
    return (
        f"median {median:.1f} ms, p99 {p99:.1f} ms, maximum {max(found):.1f} ms, {len(found)} puts"
    )


class BackgroundPuts:
    """Puts tasks one after another at a fixed interval, in a thread."""

    def __init__(self, stub: task_service_pb2_grpc.TaskServiceStub) -> None:
        self._stub = stub
        self._took_ms: list[float] = []
        self._failure: grpc.RpcError | None = None
        self._enough = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Put tasks while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until `count` latencies were measured.

        Raises:
            grpc.RpcError: a put failed, and no put followed.
        """
        with self._enough:
            self._enough.wait_for(lambda: self._failure or len(self._took_ms) >= count)
            if self._failure is not None:
                raise self._failure

    def taken(self) -> list[float]:
        """Return and clear the measured latencies, in ms."""
        with self._enough:
            found, self._took_ms = self._took_ms, []
        return found

    def _run(self) -> None:
        while not self._stopping.wait(PUT_EVERY_MS / 1000):
            begun = time.perf_counter()
            try:
                put(self._stub, 1)
            except grpc.RpcError as error:
                with self._enough:
                    self._failure = error
                    self._enough.notify_all()
                return
            with self._enough:
                self._took_ms.append((time.perf_counter() - begun) * 1000)
                self._enough.notify_all()


def put(stub: task_service_pb2_grpc.TaskServiceStub, count: int) -> None:
    """Put `count` tasks in one call; retry with the same request id if the leader changes."""
    specs = [task_pb2.TaskSpec(payload=os.urandom(PAYLOAD_BYTES)) for _ in range(count)]
    request = pb.PutTasksRequest(tube=TUBE, tasks=specs, request_id=uuid.uuid4().hex)
    until = time.monotonic() + PUT_SECONDS_MAX
    while True:
        try:
            stub.PutTasks(request, timeout=PUT_SECONDS_MAX)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                raise
        else:
            return


def fill(leader: Node, tasks: int) -> None:
    """Create the tube and put the tasks."""
    with grpc.insecure_channel(leader.address) as channel:
        tube = tube_service_pb2.Tube(name=TUBE, kind=tube_service_pb2.Tube.FIFO)
        create = tube_service_pb2.CreateTubeRequest(tube=tube)
        tube_service_pb2_grpc.TubeServiceStub(channel).CreateTube(create)
        stub = task_service_pb2_grpc.TaskServiceStub(channel)
        for begun in range(0, tasks, BATCH_TASKS):
            put(stub, min(BATCH_TASKS, tasks - begun))


def applied(node: Node) -> int:
    """Return the applied index of a node, 0 if it does not answer."""
    state = node.state()
    return state.state.applied_index if state else 0


def catch_up(cluster: LocalCluster, leader: Node) -> tuple[Node, int]:
    """Start a new node; return it and the ms until it has the leader's applied index."""
    node = cluster.joiner("newcomer")
    begun = time.monotonic_ns()
    node.start()
    goal = applied(leader)
    while applied(node) < goal:
        took_ms = (time.monotonic_ns() - begun) // 1_000_000
        if not node.is_running or took_ms > CATCH_UP_SECONDS_MAX * 1000:
            raise NodeFailed(f"the new node did not catch up within {took_ms} ms{node.tail()}")
        time.sleep(0.05)
    return node, (time.monotonic_ns() - begun) // 1_000_000


def run(folder: Path, tasks: int) -> Report:
    """Run the whole experiment in ``folder``."""
    with LocalCluster(3, folder, settings=SETTINGS) as cluster:
        leader = cluster.wait_ready()
        fill(leader, tasks)
        with grpc.insecure_channel(leader.address) as channel:
            puts = BackgroundPuts(task_service_pb2_grpc.TaskServiceStub(channel))
            with puts.going_on():
                puts.wait_for(BASELINE_PUTS)
                before = puts.taken()
                node, took_ms = catch_up(cluster, leader)
                puts.wait_for(2)
                during = puts.taken()
        state = node.folder / "data" / "state"
        size = sum(path.stat().st_size for path in state.rglob("*.sst"))
        if not size:
            raise NodeFailed("the new node has no state files, so it did not receive a snapshot")
    return Report(tasks, took_ms, size, before, during)


def main() -> int:
    """Measure the catch-up of a new member, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskraft-") as folder:
        print(run(Path(folder) / "catch-up", arguments.tasks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
