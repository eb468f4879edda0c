"""Bookkeeping of one tube that consumers wait on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from taskraft_service.leader.waiting_consumer import WaitingConsumer


@dataclass(slots=True)
class WaitingTube:
    """The wait queue of a tube, and the estimates of its tasks.

    ``line`` is the wait queue: the consumers in order of arrival, without subscriptions that have
    no credit. ``claimed`` counts the tasks that unanswered claims expect. ``expected`` counts the
    tasks that entries in flight may make ready.
    """

    line: dict[WaitingConsumer, None]
    yielding: set[WaitingConsumer] = field(default_factory=set)
    """Consumers of the tube that are served after all others."""
    consumers: int = 0
    """Number of consumers that wait on the tube, with and without credit."""
    claimed: int = 0
    expected: int = 0
    serial: int = 0
    """Incremented whenever tasks may have become ready."""
    next_consumer: WaitingConsumer | None = None
    """The consumer at which the next check begins, because an entry was full before its turn."""

    def add(self, consumer: WaitingConsumer, *, yields: bool) -> None:
        """Add a consumer at the end of the wait queue."""
        self.consumers += 1
        self.line[consumer] = None
        if yields:
            self.yielding.add(consumer)

    def remove(self, consumer: WaitingConsumer) -> None:
        """Remove a consumer, which may have no credit."""
        self.consumers -= 1
        self.line.pop(consumer, None)
        self.yielding.discard(consumer)

    def ahead_of(self, consumer: WaitingConsumer) -> Iterable[WaitingConsumer]:
        """Return the consumers to which a consumer yields."""
        if consumer not in self.yielding:
            return ()
        return (other for other in self.line if other not in self.yielding)

    def in_order(self) -> Collection[WaitingConsumer]:
        """Return the consumers of the wait queue in the order in which they are served."""
        consumers: Collection[WaitingConsumer] = self.line
        if self.next_consumer in self.line:
            waiting = list(self.line)
            place = waiting.index(self.next_consumer)
            consumers = waiting[place:] + waiting[:place]
        if not self.yielding:
            return consumers
        return sorted(consumers, key=self.yielding.__contains__)
