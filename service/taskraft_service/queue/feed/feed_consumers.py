"""Hold the named consumers of the feed, whose positions delay retention by age.

Positions never go back, so a consumer that repeats an old position after a crash changes nothing. A
consumer without a commit for its idle TTL delays retention no longer. Its position stays as long
again, so that metrics can show the events that it has lost. The number of consumers is limited.
Consumers do not delay retention by size, so a dead consumer cannot fill the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.owned_counts import OwnedCounts
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Rows, Size, Text
from taskraft_service.queue.store.keys import CONSUMER, consumer_key, prefix_stop
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value

KEPT_TTLS: Final = 2
"""Time after the last commit of a consumer until its position is removed, in idle TTLs."""


class FeedConsumer:
    """A named cursor on the feed; ``next_seq`` is by partition.

    ``owner`` is the principal that has created the consumer; empty: there was no access control.
    """

    __slots__ = ("committed_ms", "idle_ttl_ms", "name", "next_seq", "owner")

    def __init__(self, name: str, owner: str = "") -> None:
        """Make a consumer without a position."""
        self.name = name
        self.owner = owner
        self.next_seq: dict[int, int] = {}
        self.committed_ms = 0
        self.idle_ttl_ms = 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether the consumer made no commit for its idle TTL."""
        return self.committed_ms + self.idle_ttl_ms <= now_ms

    @property
    def expires_ms(self) -> int:
        """Instant at which the position of the consumer is to be removed."""
        return self.committed_ms + KEPT_TTLS * self.idle_ttl_ms

    def view(self) -> ConsumerView:
        """Return the consumer as a value."""
        return ConsumerView(self.name, dict(self.next_seq), self.committed_ms, self.idle_ttl_ms)


def _positions_of(consumer: FeedConsumer) -> Sequence[tuple[int, int]]:
    return sorted(consumer.next_seq.items())


def _consumer(
    committed_ms: int, idle_ttl_ms: int, positions: Sequence[tuple[int, int]], name: str
) -> FeedConsumer:
    consumer = FeedConsumer(name)
    consumer.committed_ms = committed_ms
    consumer.idle_ttl_ms = idle_ttl_ms
    consumer.next_seq = dict(positions)
    return consumer


CONSUMER_RECORD: Final = FieldTable(
    _consumer,
    Number("committed_ms", "Q"),
    Number("idle_ttl_ms", "Q"),
    Size("H", "positions"),
    Rows("positions", "HQ", of=_positions_of),
    Text("name"),
)


def write_consumer(consumer: FeedConsumer) -> bytes:
    """Return the record of a consumer; the owner is the rest of the record."""
    return CONSUMER_RECORD.write(consumer) + consumer.owner.encode()


def read_consumer(record: bytes) -> FeedConsumer:
    """Return the consumer of a record."""
    consumer, end = CONSUMER_RECORD.read(record)
    consumer.owner = record[end:].decode()
    return consumer


class FeedConsumers:
    """All consumers by name, and the consumers that differ from the store.

    ``owned`` has the number of consumers of each principal.
    """

    __slots__ = ("_by_name", "_dirty", "_next_expiry_ms", "owned")

    def __init__(self) -> None:
        """Start without consumers."""
        self._by_name: dict[str, FeedConsumer] = {}
        self._dirty: dict[str, None] = {}
        self.owned = OwnedCounts()
        self._next_expiry_ms = NEVER_MS
        """Instant before which no consumer expires; no consumer is looked at before."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[FeedConsumer]:
        """Yield the consumers in order of their names."""
        return (consumer for _, consumer in sorted(self._by_name.items()))

    def get(self, name: str) -> FeedConsumer | None:
        """Return a consumer, or None."""
        return self._by_name.get(name)

    def set(self, consumer: FeedConsumer) -> None:
        """Add a consumer, or mark it as changed."""
        if consumer.name not in self._by_name:
            self.owned.add(consumer.owner)
        self._by_name[consumer.name] = consumer
        self._dirty[consumer.name] = None
        self._next_expiry_ms = min(self._next_expiry_ms, consumer.expires_ms)

    def remove(self, name: str) -> bool:
        """Remove a consumer; return whether it existed."""
        self._dirty[name] = None
        consumer = self._by_name.pop(name, None)
        if consumer is not None:
            self.owned.remove(consumer.owner)
        return consumer is not None

    def remove_expired(self, now_ms: int) -> None:
        """Remove the consumers without a commit for ``KEPT_TTLS`` idle TTLs."""
        if now_ms < self._next_expiry_ms:
            return
        self._remove_each(lambda consumer: consumer.expires_ms <= now_ms)
        expiries = (consumer.expires_ms for consumer in self._by_name.values())
        self._next_expiry_ms = min(expiries, default=NEVER_MS)

    def remove_idle(self, now_ms: int) -> None:
        """Remove the idle consumers, to make room for a new one."""
        self._remove_each(lambda consumer: consumer.is_idle(now_ms))

    def _remove_each(self, is_over: Callable[[FeedConsumer], bool]) -> None:
        for name in [name for name, consumer in self._by_name.items() if is_over(consumer)]:
            self.remove(name)

    def held_back(self, now_ms: int) -> dict[int, int]:
        """Return the first sequence number that some consumer has not read, by partition."""
        floors: dict[int, int] = {}
        for consumer in self._by_name.values():
            if not consumer.is_idle(now_ms):
                for partition, seq in consumer.next_seq.items():
                    floors[partition] = min(seq, floors.get(partition, seq))
        return floors

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for name in self._dirty:
            consumer = self._by_name.get(name)
            record = write_consumer(consumer) if consumer is not None else None
            writes.append((consumer_key(name), record))
        self._dirty.clear()

    def restore(self, store: Store) -> None:
        """Read all consumers from the store."""
        for _, record in store.scan(CONSUMER, prefix_stop(CONSUMER)):
            consumer = read_consumer(record)
            self._by_name[consumer.name] = consumer
            self.owned.add(consumer.owner)
            self._next_expiry_ms = min(self._next_expiry_ms, consumer.expires_ms)


@value
class ConsumerView:
    """A feed consumer as callers see it; ``committed_ms``: instant of the last commit."""

    name: str
    next_seq: Mapping[int, int]
    committed_ms: int
    idle_ttl_ms: int
