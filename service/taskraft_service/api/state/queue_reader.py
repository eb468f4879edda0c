"""Read the queue with the consistency that the caller asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskraft.v1 import task_pb2
from taskraft_service.api.state.staleness import StalenessGuard
from taskraft_service.languages.patterns import TubePattern
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.queue import Queue


class QueueReader:
    """Returns the queue once it meets the consistency of a read.

    Args:
        machine: the state machine with the queue.
        staleness: checks how stale the applied state is.
        queues: finds the queue, replicated or temporary, that holds a tube.
        clock_ms: the cluster's time as estimated by this node, in ms.
    """

    def __init__(
        self,
        machine: QueueMachine,
        staleness: StalenessGuard,
        queues: QueueLocator,
        clock_ms: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._clock_ms = clock_ms
        self.barrier = staleness.barrier
        self._staleness = staleness
        self.queues = queues

    @staticmethod
    def is_local(consistency: task_pb2.Consistency) -> bool:
        """Return whether a read accepts the applied state of any node."""
        return consistency.level == task_pb2.Consistency.LOCAL

    def can_read_here(self, consistency: task_pb2.Consistency, tubes: Sequence[str]) -> bool:
        """Return whether this node may serve a read of tubes, given by name or pattern.

        Only the leader holds the tasks of temporary tubes.
        """
        if not self.is_local(consistency):
            return False
        temporary = self.applied.temporary_tubes()
        if not temporary:
            return True
        patterns = [TubePattern(tube) for tube in tubes]
        return not any(pattern.matches(name) for pattern in patterns for name in temporary)

    async def queue(self, consistency: task_pb2.Consistency) -> Queue:
        """Return the queue for a checked read; the caller must use it without another await.

        Raises:
            CallRefused: NODE_BEHIND, the state may be staler than the caller allows.
            ReadUnconfirmed: a linearizable read that no quorum confirmed.
        """
        if not self.is_local(consistency):
            await self.barrier()
        elif consistency.staleness_ms_max:
            await self._staleness.check_staleness(consistency.staleness_ms_max)
        return self._machine.queue

    def now_ms(self) -> int:
        """Return the cluster's time; the queue's own clock only moves when commands are applied."""
        return max(self._clock_ms(), self.queues.now_ms)

    @property
    def applied(self) -> Queue:
        """The queue as applied on this node."""
        return self._machine.queue
