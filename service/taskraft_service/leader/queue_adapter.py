"""Adapt the state machine to the interfaces that the proposer and the waiting consumers use.

Each call looks the queue up again, because installing a snapshot replaces the queue object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.operations.registry import Command


class QueueAdapter:
    """Satisfies ``waiters.ReadyCounts`` and the proposer's view of the state machine."""

    def __init__(self, machine: QueueMachine, queues: QueueLocator) -> None:
        self._machine = machine
        self._queues = queues

    def ready_count(self, tube: str) -> int:
        """Return how many tasks of a tube a take could lease now; 0 for an unknown tube."""
        return self._queues.queue_of(tube).ready_count(tube)

    def is_logged(self, tube: str) -> bool:
        """Return whether takes from a tube go through the log."""
        return self._queues.is_logged(tube)

    def tube_names(self) -> Sequence[str]:
        """Return the names of all tubes."""
        return [tube.name for tube in self._machine.queue.tubes()]

    def expect(self, data: bytes, now_ms: int, commands: Sequence[Command]) -> None:
        """Keep the decoded commands of a proposed entry until the entry is applied."""
        self._machine.expect(data, now_ms, commands)

    def next_deadline_ms(self) -> int | None:
        """Return when the queue's clock must advance next; None: nothing is due."""
        return self._machine.queue.next_deadline_ms()

    def predict_ready(self, commands: Sequence[Command], now_ms: int) -> Mapping[str, int]:
        """Return per tube how many tasks an entry may make ready; an estimate, rather too high."""
        return self._machine.queue.predict_ready_tubes(commands, now_ms)
