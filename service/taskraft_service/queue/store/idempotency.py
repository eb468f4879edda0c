"""Remember request ids and their answers, so that a repeated request takes effect once.

Request ids are in two buckets: the current bucket and the previous bucket. When the window of the
current bucket ends on the queue's clock, or the current bucket is full, a new bucket begins and the
previous bucket is deleted as a range. An id is therefore remembered for one to two windows, or for
a shorter time if buckets fill up. Ids in written batches are looked up in the store; only newer ids
are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.keys import REQUEST, prefix_stop, request_key
from taskraft_service.queue.store.store import RangeDeletion, Store, Write

_END: Final = "\0"
"""Ends each part of a scope. No principal, client_id or request_id contains it."""


def request_scope(principal: str, client_id: str) -> str:
    """Return the scope of the request ids of a caller.

    A scope has two NULs or is empty, and a request_id has none. So two requests that differ in
    principal, client_id or request_id never have the same text.
    """
    return f"{principal}{_END}{client_id}{_END}" if principal or client_id else ""


def without_scope(request_id: str) -> str:
    """Return the request_id that the caller sent, from a request_id with its scope in front."""
    return request_id.rpartition(_END)[2]


_hash = Struct(">Q")
_head = Struct(">QBQ")
"""Hash, ``_WITH_REVISION`` and revision, before the answer."""
_WITH_REVISION: Final = 255
"""Follows the hash in a record with a revision.

Records of development builds have the answer there, and no answer begins with this byte.
"""


class IdempotencyTable:
    """The remembered requests.

    ``_current`` and ``_previous`` hold the requests that are not in the store yet.

    Attributes:
        bucket: number of the current bucket.
        started_ms: instant at which the current bucket began.
        count: number of requests in the current bucket.
        count_before: number of requests in the previous bucket.
    """

    __slots__ = (
        "_count_max",
        "_current",
        "_limits",
        "_previous",
        "_rotated",
        "_store",
        "bucket",
        "count",
        "count_before",
        "is_full",
        "started_ms",
        "window_end_ms",
    )

    def __init__(self, store: Store, limits: Limits) -> None:
        """Create an empty table."""
        self._store = store
        self._limits = limits
        self._count_max = max(limits.requests_max // 2, 1)
        self.bucket = 1
        self.started_ms = 0
        self.count = 0
        self.window_end_ms = limits.request_window_ms
        """End of the window of the current bucket, in milliseconds on the queue's clock."""
        self.is_full = False
        """Whether the current bucket has its maximum number of requests."""
        self.count_before = 0
        self._current: dict[str, bytes] = {}
        self._previous: dict[str, bytes] = {}
        self._rotated = False

    def find(self, request_id: str) -> tuple[int, int, bytes] | None:
        """Return hash, revision and answer of a remembered request, or None.

        The revision is the index of the entry that executed the request; 0: not known.
        """
        record = (
            self._current.get(request_id)
            or self._previous.get(request_id)
            or (self.count and self._store.get(request_key(self.bucket, request_id)))
            or (self.count_before and self._store.get(request_key(self.bucket - 1, request_id)))
            or None
        )
        if record is None:
            return None
        if record[_hash.size] != _WITH_REVISION:
            return _hash.unpack_from(record)[0], 0, record[_hash.size :]
        request_hash, _, revision = _head.unpack_from(record)
        return request_hash, revision, record[_head.size :]

    def remember(self, request_id: str, request_hash: int, revision: int, answer: bytes) -> None:
        """Remember revision and answer of a request whose id is not in the table."""
        self._current[request_id] = _head.pack(request_hash, _WITH_REVISION, revision) + answer
        self.count += 1
        if self.count >= self._count_max:
            self.is_full = True

    def _set_bounds(self) -> None:
        """Compute when the window of the current bucket ends and whether the bucket is full."""
        self.window_end_ms = self.started_ms + self._limits.request_window_ms
        self.is_full = self.count >= self._count_max

    def rotate(self, now_ms: int) -> None:
        """Begin a new bucket.

        Call when the window of the current bucket has ended or the bucket is full.
        """
        self.started_ms = now_ms
        self.bucket += 1
        self.count_before = self.count
        self.count = 0
        self._previous, self._current = self._current, {}
        self._rotated = True
        self._set_bounds()

    def collect(self, writes: list[Write]) -> None:
        """Append the changes that are not in the store yet to ``writes``."""
        bucket = self.bucket
        for number, fresh in ((bucket, self._current), (bucket - 1, self._previous)):
            for request_id, record in fresh.items():
                writes.append((request_key(number, request_id), record))
            fresh.clear()
        if self._rotated:
            writes.append(RangeDeletion(REQUEST, request_key(bucket - 1, "")))
            self._rotated = False

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Yield all remembered ids with their records, in no particular order; for digests."""
        start = len(request_key(0, ""))
        for key, record in self._store.scan(request_key(self.bucket - 1, ""), prefix_stop(REQUEST)):
            yield key[start:].decode(), record
        yield from self._previous.items()
        yield from self._current.items()

    def restore(self, bucket: int, started_ms: int, count: int, count_before: int) -> None:
        """Set the numbers from the meta record."""
        self.bucket, self.started_ms = bucket, started_ms
        self.count, self.count_before = count, count_before
        self._set_bounds()
