"""Read the queue as fresh as the caller wants it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from service.api.status import Refused
from service.api.violations import Violations
from service.contents import Contents
from service.patterns import matcher
from service.queue.commands import Durability
from service.queue.queue import Queue
from service.state_machine import QueueMachine
from taskraft.v1 import error_pb2, task_pb2

_LEVELS: Final = frozenset(task_pb2.Consistency.Level.values())


class Reading:
    """Gives out the queue once it shows what the caller may expect.

    Args:
        machine: has the queue.
        barrier: returns once everything acknowledged before the call is applied here.
        silence_ms: how long no leader has been heard of; 0 on the leader itself.
        contents: the queues of this node.
    """

    def __init__(
        self,
        machine: QueueMachine,
        barrier: Callable[[], Awaitable[object]],
        silence_ms: Callable[[], int],
        contents: Contents,
    ) -> None:
        self._machine = machine
        self.barrier = barrier
        self._silence_ms = silence_ms
        self.contents = contents

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
        patterns = [matcher(tube) for tube in tubes]
        return not any(
            view.options.durability is Durability.TEMPORARY
            and any(pattern.fullmatch(view.name) for pattern in patterns)
            for view in self.applied.tubes()
        )

    async def queue(self, consistency: task_pb2.Consistency) -> Queue:
        """Return the queue for one read, without another wait in between.

        Raises:
            Refused: INVALID_FIELD; or NODE_BEHIND: no leader has been heard of for longer than the
                caller allows.
            ReadUnconfirmed: a linearizable read, and no majority confirms that it is one.
        """
        _check(consistency)
        if self.is_local(consistency):
            limit_ms = consistency.staleness_ms_max
            silence_ms = self._silence_ms()
            if limit_ms and silence_ms > limit_ms:
                raise Refused(
                    error_pb2.Error.NODE_BEHIND,
                    f"this node has not heard from a leader for {silence_ms} ms",
                    {"silence_ms": str(silence_ms)},
                )
        else:
            await self.barrier()
        return self._machine.queue

    @property
    def applied(self) -> Queue:
        """The queue as it is applied here."""
        return self._machine.queue


def _check(consistency: task_pb2.Consistency) -> None:
    """Refuse what no node can promise."""
    wrong = Violations()
    wrong.choice("consistency.level", consistency.level, _LEVELS)
    wrong.not_negative("consistency.staleness_ms_max", consistency.staleness_ms_max)
    if consistency.staleness_ms_max > 0 and not Reading.is_local(consistency):
        wrong.add("consistency.staleness_ms_max", "goes with the level LOCAL only")
    wrong.raise_any()
