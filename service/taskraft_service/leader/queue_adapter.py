"""Show the queue to the waiters and to the proposer: what is ready, what an entry may make ready.

The state machine's queue is replaced when a snapshot is installed, so it is asked for each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.operations.registry import Command


class QueueAdapter:
    """Satisfies ``waiters.ReadyCounts`` and ``proposer.Core``."""

    def __init__(self, machine: QueueMachine, queues: QueueLocator) -> None:
        self._machine = machine
        self._queues = queues

    def ready(self, tube: str) -> int:
        """Return how many tasks of a tube could be taken now."""
        return self._queues.queue_of(tube).ready_count(tube)

    def is_logged(self, tube: str) -> bool:
        """Tell whether takes from a tube go into the log."""
        return self._queues.is_logged(tube)

    def names(self) -> Sequence[str]:
        """Return the names of all tubes."""
        return [tube.name for tube in self._machine.queue.tubes()]

    def expect(self, data: bytes, now_ms: int, commands: Sequence[Command]) -> None:
        """Keep the commands of an entry until it is applied."""
        self._machine.expect(data, now_ms, commands)

    def next_deadline_ms(self) -> int | None:
        """Return when the clock must move next."""
        return self._machine.queue.next_deadline_ms()

    def feeds(self, commands: Sequence[Command], now_ms: int) -> Mapping[str, int]:
        """Return how many tasks an entry may make ready by tube: too many rather than too few."""
        return self._machine.queue.predict_ready_tubes(commands, now_ms)
