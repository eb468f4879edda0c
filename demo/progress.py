"""Watch the cluster from outside: who leads, and how far the tasks have come.

A thread asks the running nodes for what they have applied, so that it also has an answer while
nobody leads. It tells progress and changes of the leader, and lets others wait for a point of the
way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import grpc

from demo.chronicle import Chronicle
from taskraft.v1 import task_pb2, tube_service_pb2, tube_service_pb2_grpc
from tools.local_cluster import LocalCluster

POLL_MS: Final = 25
TELL_EVERY_MS: Final = 500
ASK_TIMEOUT_S: Final = 1
STALLED_AFTER_MS: Final = 60_000
"""Without any progress for so long the demo has failed."""


class Stalled(Exception):
    """Nothing has moved for too long; the text says how far the tasks had come."""


@dataclass(slots=True, frozen=True)
class Sight:
    """How things stand at one moment."""

    leader: str = ""
    put: int = 0
    processed: int = 0
    held: int = 0

    def describe(self) -> str:
        """Return the sight as a line."""
        leader = f"{self.leader} leads" if self.leader else "nobody leads"
        return f"{self.put} put, {self.held} held, {self.processed} processed; {leader}"


class Progress:
    """Look at a tube of a cluster from a thread of its own, from enter to exit."""

    def __init__(self, cluster: LocalCluster, tube: str, chronicle: Chronicle) -> None:
        self._cluster: Final = cluster
        self._tube: Final = tube
        self._chronicle: Final = chronicle
        self._channels: Final = {
            node.name: grpc.insecure_channel(node.address) for node in cluster.nodes
        }
        self._changed: Final = threading.Condition()
        self._sight = Sight()
        self._is_over = False
        self._thread: Final = threading.Thread(target=self._watch, name="progress")

    def wait_until(self, is_reached: Callable[[Sight], bool]) -> Sight:
        """Wait until the sight is as wanted; return it.

        Raises:
            Stalled: no progress at all for a minute.
        """
        with self._changed:
            while not is_reached(self._sight):
                before = self._sight
                if not self._changed.wait(STALLED_AFTER_MS / 1_000) and self._sight == before:
                    raise Stalled(self._sight.describe())
            return self._sight

    def _watch(self) -> None:
        told_ns, told = 0, Sight()
        while not self._is_over:
            now_ns = time.monotonic_ns()
            sight = self._look()
            self._note(sight)
            if sight.leader and sight.leader != told.leader:
                self._chronicle.tell(f"{sight.leader} leads")
                told = Sight(sight.leader, told.put, told.processed, told.held)
            if now_ns - told_ns >= TELL_EVERY_MS * 1_000_000 and sight != told:
                self._chronicle.tell(sight.describe())
                told_ns, told = now_ns, sight if sight.leader else told
            time.sleep(POLL_MS / 1_000)

    def _note(self, sight: Sight) -> None:
        with self._changed:
            if sight != self._sight:
                self._sight = sight
                self._changed.notify_all()

    def _look(self) -> Sight:
        """Ask the running nodes; the one that has applied most tells the counts."""
        leader, counts = "", (self._sight.processed, self._sight.put, self._sight.held)
        for node in self._cluster.running():
            state = node.state()
            if state is None:
                continue
            # A node that follows a dead leader still names it: count only who says so of itself.
            leader = node.name if state.leader == state.node else leader
            statistics = self._count(node.name)
            if statistics is not None:
                calls, tasks = statistics.calls, statistics.tasks
                counts = max(counts, (calls.ack, calls.put, tasks.taken))
        return Sight(leader, put=counts[1], processed=counts[0], held=counts[2])

    def _count(self, name: str) -> tube_service_pb2.TubeStatistics | None:
        stub = tube_service_pb2_grpc.TubeServiceStub(self._channels[name])
        request = tube_service_pb2.GetStatisticsRequest(
            tubes=[self._tube],
            consistency=task_pb2.Consistency(level=task_pb2.Consistency.LOCAL),
        )
        try:
            answer = stub.GetStatistics(request, timeout=ASK_TIMEOUT_S)
        except grpc.RpcError:
            return None  # being killed, or not started yet: another node answers
        return answer.tubes[0] if answer.tubes else None

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look no more."""
        self._is_over = True
        self._thread.join()
        for channel in self._channels.values():
            channel.close()
