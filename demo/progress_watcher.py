"""Watch the cluster from outside: the leader, and the number of processed tasks.

A thread asks the running nodes for their applied state, so it also gets answers while there is no
leader. The thread prints progress and changes of leader, and wakes callers that wait for a state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import grpc

from demo.event_log import EventLog
from taskraft.v1 import task_pb2, tube_service_pb2, tube_service_pb2_grpc
from tools.local_cluster import LocalCluster

POLL_MS: Final = 25
TELL_EVERY_MS: Final = 500
ASK_TIMEOUT_S: Final = 1
STALLED_AFTER_MS: Final = 60_000
"""Time without progress after which the demo fails, in ms."""


class ProgressStalled(Exception):
    """No progress for too long; the message has the last progress."""


@dataclass(slots=True, frozen=True)
class TubeProgress:
    """Leader and task counts at one time."""

    leader: str = ""
    put: int = 0
    processed: int = 0
    held: int = 0

    def describe(self) -> str:
        """Return the progress as a line of text."""
        leader = f"leader {self.leader}" if self.leader else "no leader"
        return f"{self.put} put, {self.held} held, {self.processed} processed; {leader}"


class ProgressWatcher:
    """Context manager that watches a tube of a cluster from a thread."""

    def __init__(self, cluster: LocalCluster, tube: str, event_log: EventLog) -> None:
        self._cluster: Final = cluster
        self._tube: Final = tube
        self._event_log: Final = event_log
        self._channels: Final = {
            node.name: grpc.insecure_channel(node.address) for node in cluster.nodes
        }
        self._changed: Final = threading.Condition()
        self._progress = TubeProgress()
        self._is_over = False
        self._thread: Final = threading.Thread(target=self._watch, name="progress")

    def wait_until(self, is_reached: Callable[[TubeProgress], bool]) -> TubeProgress:
        """Wait until `is_reached` accepts the progress; return the progress.

        Raises:
            ProgressStalled: no progress for one minute.
        """
        with self._changed:
            while not is_reached(self._progress):
                before = self._progress
                if not self._changed.wait(STALLED_AFTER_MS / 1_000) and self._progress == before:
                    raise ProgressStalled(self._progress.describe())
            return self._progress

    def _watch(self) -> None:
        told_ns, told = 0, TubeProgress()
        while not self._is_over:
            now_ns = time.monotonic_ns()
            progress = self._look()
            self._note(progress)
            if progress.leader and progress.leader != told.leader:
                self._event_log.print_event(f"{progress.leader} is the leader")
                told = TubeProgress(progress.leader, told.put, told.processed, told.held)
            if now_ns - told_ns >= TELL_EVERY_MS * 1_000_000 and progress != told:
                self._event_log.print_event(progress.describe())
                told_ns, told = now_ns, progress if progress.leader else told
            time.sleep(POLL_MS / 1_000)

    def _note(self, progress: TubeProgress) -> None:
        with self._changed:
            if progress != self._progress:
                self._progress = progress
                self._changed.notify_all()

    def _look(self) -> TubeProgress:
        """Ask the running nodes; the node that has applied most provides the counts."""
        leader, counts = "", (self._progress.processed, self._progress.put, self._progress.held)
        for node in self._cluster.running():
            state = node.state()
            if state is None:
                continue
            # A follower of a dead leader still names it, so trust only a node that names itself.
            leader = node.name if state.leader == state.node else leader
            statistics = self._count(node.name)
            if statistics is not None:
                calls, tasks = statistics.calls, statistics.tasks
                counts = max(counts, (calls.ack, calls.put, tasks.taken))
        return TubeProgress(leader, put=counts[1], processed=counts[0], held=counts[2])

    def _count(self, name: str) -> tube_service_pb2.TubeStatistics | None:
        stub = tube_service_pb2_grpc.TubeServiceStub(self._channels[name])
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=[self._tube],
            consistency=task_pb2.Consistency(level=task_pb2.Consistency.LOCAL),
        )
        try:
            answer = stub.GetStatistics(request, timeout=ASK_TIMEOUT_S)
        except grpc.RpcError:
            return None  # the node is down; another node answers
        return answer.tubes[0] if answer.tubes else None

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread and close the channels."""
        self._is_over = True
        self._thread.join()
        for channel in self._channels.values():
            channel.close()
