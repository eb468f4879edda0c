"""Read the queue as fresh as the caller wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskraft.v1 import task_pb2
from taskraft_service.api.state.staleness import StalenessGuard
from taskraft_service.languages.patterns import TubePattern
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.queue import Queue


class QueueReader:
    """Gives out the queue once it shows what the caller may expect.

    Args:
        machine: has the queue.
        freshness: proves how old what the queue shows may be.
        queues: the queues of this node.
        clock_ms: tells the cluster's time as this node knows it.
    """

    def __init__(
        self,
        machine: QueueMachine,
        freshness: StalenessGuard,
        queues: QueueLocator,
        clock_ms: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._clock_ms = clock_ms
        self.barrier = freshness.barrier
        self._freshness = freshness
        self.queues = queues

    @staticmethod
    def is_local(consistency: task_pb2.Consistency) -> bool:
        """Tell whether a read is content with what any node has applied."""
        return consistency.level == task_pb2.Consistency.LOCAL

    def is_here(self, consistency: task_pb2.Consistency, tubes: Sequence[str]) -> bool:
        """Tell whether this node's own state will do for a read of tubes, by name or pattern.

        It does not for temporary ones, whose contents the leader has.
        """
        if not self.is_local(consistency):
            return False
        temporary = self.applied.temporary_tubes()
        if not temporary:
            return True
        patterns = [TubePattern(tube) for tube in tubes]
        return not any(pattern.matches(name) for pattern in patterns for name in temporary)

    async def queue(self, consistency: task_pb2.Consistency) -> Queue:
        """Return the queue for one read that was checked, without another wait in between.

        Raises:
            Refused: NODE_BEHIND: the queue may be older than the caller allows.
            ReadUnconfirmed: a linearizable read, and no majority confirms that it is one.
        """
        if not self.is_local(consistency):
            await self.barrier()
        elif consistency.staleness_ms_max:
            await self._freshness.within(consistency.staleness_ms_max)
        return self._machine.queue

    def now_ms(self) -> int:
        """Return the cluster's time: that of the queue stands still while nothing is changed."""
        return max(self._clock_ms(), self.queues.now_ms)

    @property
    def applied(self) -> Queue:
        """The queue as it is applied here."""
        return self._machine.queue
