"""Limit how often each sub-queue of a tube gives a task: so many times a second, so many at once.

A sub-queue has a token bucket from its first take on until it is full again; so what is known
follows the sub-queues that have given a task lately, not those that there are. One whose bucket is
used up is barred. It stays so until its time is told to have come (``readmit``), so that what may
be taken changes with entries of the log only, and is the same whatever is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.token_bucket import TokenBucket
from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.store.keys import (
    SUBQUEUE_RATE,
    subqueue_of_rate,
    subqueue_rate_key,
    tube_range,
)
from taskraft_service.queue.store.store import Store, Write

LOOKED_AT: Final = 2
"""So many buckets, those not used for longest, are looked at with each use: are they full?"""
_record = Struct(">qQ")


class SubqueueRates:
    """The buckets of one tube's sub-queues.

    ``per_second`` 0: they are not limited.
    """

    __slots__ = ("_barred", "_buckets", "_burst", "_number", "_store", "_touched", "per_second")

    def __init__(self, number: int, store: Store, options: TubeOptions) -> None:
        """Begin with full buckets, for a tube's number."""
        self._number = number
        self._store = store
        self.per_second = options.subqueue_rate_per_second
        self._burst = options.subqueue_rate_burst or self.per_second
        self._buckets: dict[str, TokenBucket] = {}
        """By sub-queue; the one not used for longest first."""
        self._barred: list[tuple[int, str]] = []
        """A heap of the barred sub-queues by the time when they will not be."""
        self._touched: dict[str, None] = {}

    def restore(self) -> None:
        """Take over what the store has."""
        if not self.per_second:
            return
        found: dict[str, TokenBucket] = {}
        for key, record in self._store.scan(*tube_range(SUBQUEUE_RATE, self._number)):
            level, at_ms = _record.unpack(record)
            bucket = found[subqueue_of_rate(key)] = TokenBucket(self.per_second, self._burst, at_ms)
            bucket.level = level
        self._buckets = dict(sorted(found.items(), key=lambda pair: pair[1].at_ms))
        self._order_barred()

    def take_over(self, other: SubqueueRates) -> None:
        """Go on with what is left in the buckets of another tube number."""
        self._buckets, self._barred = other._buckets, other._barred
        self._touched = dict.fromkeys(self._buckets)

    # ------------------------------------------------------------------------------------- limits

    def allows(self, subqueue: str) -> bool:
        """Tell whether a sub-queue may give a task, as far as its rate goes."""
        bucket = self._buckets.get(subqueue)
        return bucket is None or not bucket.is_used_up

    def use(self, subqueue: str, now_ms: int) -> None:
        """Note that a sub-queue gives a task; it may be barred by that."""
        self._forget_full(now_ms)
        bucket = self._buckets.pop(subqueue, None)
        if bucket is None:
            bucket = TokenBucket(self.per_second, self._burst, now_ms)
        self._buckets[subqueue] = bucket
        self._touched[subqueue] = None
        bucket.use(1, now_ms)
        due_ms = bucket.due_ms()
        if due_ms is not None:
            heappush(self._barred, (due_ms, subqueue))

    def due_ms(self) -> int | None:
        """Return when the first of the barred sub-queues will not be any more."""
        return self._barred[0][0] if self._barred else None

    def due(self, now_ms: int, most: int) -> list[str]:
        """Return up to so many barred sub-queues whose time has come, the first ones first."""
        names: list[str] = []
        while self._barred and self._barred[0][0] <= now_ms and len(names) < most:
            names.append(heappop(self._barred)[1])
        return names

    def readmit(self, subqueue: str, now_ms: int) -> None:
        """Let a sub-queue that was ``due`` give tasks again."""
        self._buckets[subqueue].use(0, now_ms)
        self._touched[subqueue] = None

    def barred(self) -> list[str]:
        """Return all barred sub-queues in order of their names."""
        return sorted(name for _, name in self._barred)

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Go on with other rates, with what is left of the old ones; takes time for each bucket."""
        per_second = options.subqueue_rate_per_second
        burst = options.subqueue_rate_burst or per_second
        if (per_second, burst) == (self.per_second, self._burst):
            return
        self._touched.update(dict.fromkeys(self._buckets))
        self.per_second, self._burst = per_second, burst
        if not per_second:
            self._buckets.clear()
        for bucket in self._buckets.values():
            bucket.change(per_second, burst, now_ms)
        self._order_barred()

    def _order_barred(self) -> None:
        self._barred = [
            (due_ms, name)
            for name, bucket in self._buckets.items()
            if (due_ms := bucket.due_ms()) is not None
        ]
        heapify(self._barred)

    def _forget_full(self, now_ms: int) -> None:
        """Forget buckets that are full again: they are as those that nobody knows."""
        for _ in range(min(LOOKED_AT, len(self._buckets))):
            oldest = next(iter(self._buckets))
            if not self._buckets[oldest].is_full(now_ms):
                break
            del self._buckets[oldest]
            self._touched[oldest] = None

    # ------------------------------------------------------------------------------------- memory

    def collect(self, writes: list[Write]) -> None:
        """Append what the store does not know to ``writes``."""
        for name in self._touched:
            bucket = self._buckets.get(name)
            record = None if bucket is None else _record.pack(bucket.level, bucket.at_ms)
            writes.append((subqueue_rate_key(self._number, name), record))
        self._touched.clear()

    def digest_parts(self, now_ms: int) -> Iterator[bytes]:
        """Yield what is known, but for buckets that are full: those may be forgotten or not."""
        for name, bucket in sorted(self._buckets.items()):
            if not bucket.is_full(now_ms):
                yield repr((name, bucket.level, bucket.at_ms)).encode()
