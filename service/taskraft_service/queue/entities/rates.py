"""Limit the rate of takes with token buckets: one for a tube, and one for each sub-queue.

A sub-queue has a bucket from its first take until the bucket is full again. Memory use therefore
depends only on the number of recently used sub-queues. A sub-queue with an empty bucket is excluded
from takes until ``readmit``. Only log entries exclude and readmit a sub-queue, so all replicas
agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.tube_options import TubeOptions
from taskraft_service.queue.store.keys import (
    SUBQUEUE_RATE,
    subqueue_of_rate,
    subqueue_rate_key,
    tube_range,
)
from taskraft_service.queue.store.store import Store, Write

WHOLE: Final = 1_000
"""Levels of one token. A rate of 1 per second adds one level per millisecond."""


class TokenBucket:
    """A token bucket; ``level`` is its level at the instant ``at_ms``.

    Levels are integers and follow the clock of the log, so that all replicas agree. A bucket starts
    full and refills at the rate.
    """

    __slots__ = ("at_ms", "burst", "level", "per_second")

    def __init__(self, per_second: int, burst: int, now_ms: int) -> None:
        """Start with a full bucket."""
        assert per_second > 0
        assert burst > 0
        self.per_second = per_second
        self.burst = burst
        self.level = burst * WHOLE
        self.at_ms = now_ms

    def left(self, now_ms: int) -> int:
        """Return the number of whole tokens now."""
        return max(self._level(now_ms) // WHOLE, 0)

    def use(self, times: int, now_ms: int) -> None:
        """Remove tokens; the level may become negative."""
        self.level = self._level(now_ms) - times * WHOLE
        self.at_ms = now_ms

    def due_ms(self) -> int | None:
        """Return the time at which the next whole token is available; None if one is left."""
        missing = WHOLE - self.level
        return self.at_ms - (-missing // self.per_second) if missing > 0 else None

    @property
    def is_used_up(self) -> bool:
        """Return whether less than one whole token was left at ``at_ms``."""
        return self.level < WHOLE

    def is_full(self, now_ms: int) -> bool:
        """Return whether the bucket is full now and had a whole token at ``at_ms``."""
        return not self.is_used_up and self._level(now_ms) == self.burst * WHOLE

    def change(self, per_second: int, burst: int, now_ms: int) -> None:
        """Set another rate and keep the level."""
        self.level = min(self._level(now_ms), burst * WHOLE)
        self.at_ms = now_ms
        self.per_second = per_second
        self.burst = burst

    def _level(self, now_ms: int) -> int:
        come = (now_ms - self.at_ms) * self.per_second
        return min(self.level + come, self.burst * WHOLE)


LOOKED_AT: Final = 2
"""Number of least recently used buckets that each use checks, to remove full buckets."""

_record = Struct(">qQ")


class SubqueueRates:
    """The buckets of the sub-queues of one tube; ``per_second`` 0: unlimited."""

    __slots__ = ("_barred", "_buckets", "_burst", "_number", "_store", "_touched", "per_second")

    def __init__(self, number: int, store: Store, options: TubeOptions) -> None:
        """Start with full buckets; the store has the buckets under the tube's ``number``."""
        self._number = number
        self._store = store
        self.per_second = options.subqueue_rate_per_second
        self._burst = options.subqueue_rate_burst or self.per_second
        self._buckets: dict[str, TokenBucket] = {}
        """Buckets by sub-queue, least recently used first."""
        self._barred: list[tuple[int, str]] = []
        """A heap of the excluded sub-queues, by the instant at which the exclusion ends."""
        self._touched: dict[str, None] = {}

    def restore(self) -> None:
        """Read the buckets from the store."""
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
        """Use the buckets that the tube had before its truncation, under its former number."""
        self._buckets, self._barred = other._buckets, other._barred
        self._touched = dict.fromkeys(self._buckets)

    # ------------------------------------------------------------------------------------- limits

    def allows(self, subqueue: str) -> bool:
        """Return whether the rate allows a take from a sub-queue."""
        bucket = self._buckets.get(subqueue)
        return bucket is None or not bucket.is_used_up

    def use(self, subqueue: str, now_ms: int) -> None:
        """Count a take from a sub-queue, and exclude the sub-queue if its bucket is empty."""
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
        """Return the instant at which the first exclusion ends, or None."""
        return self._barred[0][0] if self._barred else None

    def due(self, now_ms: int, most: int) -> list[str]:
        """Remove and return sub-queues that the rate limit no longer excludes, earliest first.

        Returns at most ``most`` sub-queues.
        """
        names: list[str] = []
        while self._barred and self._barred[0][0] <= now_ms and len(names) < most:
            names.append(heappop(self._barred)[1])
        return names

    def readmit(self, subqueue: str, now_ms: int) -> None:
        """End the exclusion of a sub-queue that ``due`` returned."""
        self._buckets[subqueue].use(0, now_ms)
        self._touched[subqueue] = None

    def barred(self) -> list[str]:
        """Return all excluded sub-queues in order of their names."""
        return sorted(name for _, name in self._barred)

    def configure(self, options: TubeOptions, now_ms: int) -> None:
        """Set other rates and keep the levels; takes time linear in the number of buckets.

        A full bucket is also full under the new rates. Replicas remove full buckets at different
        times, so a full bucket must behave like a removed bucket.
        """
        per_second = options.subqueue_rate_per_second
        burst = options.subqueue_rate_burst or per_second
        if (per_second, burst) == (self.per_second, self._burst):
            return
        self._touched.update(dict.fromkeys(self._buckets))
        self._buckets = {
            name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now_ms)
        }
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
        """Remove full buckets, because a missing bucket counts as full."""
        for _ in range(min(LOOKED_AT, len(self._buckets))):
            oldest = next(iter(self._buckets))
            if not self._buckets[oldest].is_full(now_ms):
                break
            del self._buckets[oldest]
            self._touched[oldest] = None

    # ------------------------------------------------------------------------------------- memory

    def collect(self, writes: list[Write]) -> None:
        """Append the changes that are not in the store to ``writes``."""
        for name in self._touched:
            bucket = self._buckets.get(name)
            record = None if bucket is None else _record.pack(bucket.level, bucket.at_ms)
            writes.append((subqueue_rate_key(self._number, name), record))
        self._touched.clear()

    def digest_parts(self, now_ms: int) -> Iterator[bytes]:
        """Yield the state without full buckets, which replicas remove at different times."""
        for name, bucket in sorted(self._buckets.items()):
            if not bucket.is_full(now_ms):
                yield repr((name, bucket.level, bucket.at_ms)).encode()
