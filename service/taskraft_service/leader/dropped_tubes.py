"""Tell waiting consumers that their tube was dropped, a bounded number in one turn of the loop."""

from __future__ import annotations

from functools import partial

from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import WaitingConsumer
from taskraft_service.machine.sliced_calls import ENDED_AT_ONCE, SlicedCalls


class DroppedTubes:
    """The tubes that were dropped while consumers waited on them.

    Args:
        waiters: the waiting consumers of this node.
    """

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self._unchecked: SlicedCalls[WaitingConsumer] = SlicedCalls(ENDED_AT_ONCE)

    def add(self, tube: str) -> None:
        """Notify the present consumers of a tube, also those without credit, in later turns."""
        self._unchecked.add(partial(self._notify, tube), self._waiters)

    def _notify(self, tube: str, consumer: WaitingConsumer) -> None:
        if self._waiters.waits_on(consumer, tube):
            consumer.tube_dropped(tube)
