"""Build and parse the keys of the store; the first byte of a key is its kind.

Numbers are big-endian, so that keys sort in the order of the numbers. Signed numbers are shifted
up by 2^63 for the same reason. docs/data.md describes the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.store.store import Store

META: Final = b"m"
TUBE: Final = b"u"
TASK: Final = b"t"
BODY: Final = b"y"
READY_ORDER: Final = b"r"
WAITING_ORDER: Final = b"w"
TYPED_ORDER: Final = b"v"
BURIED_ORDER: Final = b"b"
SUBQUEUE_RATE: Final = b"a"
LEASE: Final = b"l"
TIMER: Final = b"d"
SESSION: Final = b"s"
REQUEST: Final = b"q"
FEED: Final = b"f"
SCHEDULE: Final = b"c"
GROUP: Final = b"g"
MEMBER: Final = b"h"
DEPENDENT: Final = b"p"
ENDING: Final = b"n"
CONSUMER: Final = b"o"
FAILURE: Final = b"e"
QUARANTINE: Final = b"x"
TUBE_OWNER: Final = b"A"
AUDIT: Final = b"j"
BULK_SWEEP: Final = b"i"
UPGRADE_MARKER: Final = b"z"
AUDIT_NUMBERS: Final = b"jn"
BULK_NUMBER: Final = b"in"
_BULK_RECORD: Final = b"ia"
_AUDIT_RECORD: Final = b"ja"
_FAILURE_RECORD: Final = b"ea"
_FAILED_TASK: Final = b"eb"
_FAILED_KEY: Final = b"ec"

DELAY_TIMER: Final = 1
LEASE_TIMER: Final = 2
TTL_TIMER: Final = 3
RETENTION_TIMER: Final = 4
SESSION_TIMER: Final = 5
RATE_TIMER: Final = 6
"""Kinds of timers; timers of the same instant fire in this order."""
TASK_TIMERS: Final = (DELAY_TIMER, LEASE_TIMER, TTL_TIMER, RETENTION_TIMER)
"""Kinds of timers that belong to one task."""
UNIQUE: Final = b"k"

INSIDE_TUBES: Final = (
    TASK,
    BODY,
    READY_ORDER,
    WAITING_ORDER,
    TYPED_ORDER,
    BURIED_ORDER,
    SUBQUEUE_RATE,
)
"""Prefixes that are followed by a tube number, so that a tube's keys can be deleted as a range."""
OUTSIDE_TUBES: Final = (LEASE, TIMER)
"""Prefixes of task keys that do not continue with a tube number."""

OFFSET: Final = 1 << 63
"""Offset that makes signed 64-bit numbers unsigned."""
_READY: Final = READY_ORDER[0]
_WAITING: Final = WAITING_ORDER[0]
_TYPED: Final = TYPED_ORDER[0]
_BURIED: Final = BURIED_ORDER[0]
_TASK: Final = TASK[0]
_BODY: Final = BODY[0]
_LEASE: Final = LEASE[0]
_TIMER: Final = TIMER[0]

_tube = Struct(">cI")
_numbered = Struct(">cQ")
_task = Struct(">BIQ")
_order = Struct(">BIQQQ")
_named = Struct(">BIH")
_place = Struct(">QQQ")
_lease = Struct(">BQ")
_timer = Struct(">BQBIQ")
_chunk = Struct(">cHQ")
_member = Struct(">cQIQ")
_length = Struct(">H")
_serial = Struct(">Q")
_holder = Struct(">IQ")

PREFIXES_MAX: Final = 4_096
"""Maximum number of cached key prefixes: for sub-queues, and separately for task types."""
TASK_KEY_BYTES: Final = _task.size


def tube_key(tube: int) -> bytes:
    """Return the key of a tube's record."""
    return _tube.pack(TUBE, tube)


def tube_range(prefix: bytes, tube: int) -> tuple[bytes, bytes]:
    """Return the range of a tube's keys under a prefix: first key, and end (exclusive)."""
    return _tube.pack(prefix, tube), _tube.pack(prefix, tube + 1)


def task_key(tube: int, task: int) -> bytes:
    """Return the key of a task's record."""
    return _task.pack(_TASK, tube, task)


def body_key(tube: int, task: int) -> bytes:
    """Return the key of a task's body, for a body that is not inline in the record."""
    return _task.pack(_BODY, tube, task)


def task_id_of(key: bytes) -> int:
    """Parse the task id from the key of a task's record."""
    task: int = _task.unpack(key)[2]
    return task


def ready_key(tube: int, order: OrderKey) -> bytes:
    """Return the order key of a ready task."""
    lane, rank, task = order
    return _order.pack(_READY, tube, lane + OFFSET, rank + OFFSET, task)


def subqueue_rate_key(tube: int, subqueue: str) -> bytes:
    """Return the key of the token bucket of a sub-queue's rate."""
    return _tube.pack(SUBQUEUE_RATE, tube) + subqueue.encode()


def subqueue_of_rate(key: bytes) -> str:
    """Parse the name of the sub-queue from the key of its token bucket."""
    return key[_tube.size :].decode()


@lru_cache(maxsize=PREFIXES_MAX)
def subqueue_prefix(tube: int, subqueue: str) -> bytes:
    """Return the key prefix of the ready tasks of a sub-queue.

    The length before the name separates the keys of sub-queue ``a`` from the keys of ``ab``.
    """
    name = subqueue.encode()
    return _named.pack(_WAITING, tube, len(name)) + name


@lru_cache(maxsize=PREFIXES_MAX)
def typed_prefix(tube: int, task_type: str) -> bytes:
    """Return the key prefix of the tasks of one type that a tube offers."""
    name = task_type.encode()
    return _named.pack(_TYPED, tube, len(name)) + name


def waiting_key(prefix: bytes, order: OrderKey) -> bytes:
    """Return the order key of a ready task in its sub-queue or among the tasks of its type."""
    lane, rank, task = order
    return prefix + _place.pack(lane + OFFSET, rank + OFFSET, task)


def buried_key(tube: int, order: OrderKey) -> bytes:
    """Return the order key of a buried task."""
    lane, rank, task = order
    return _order.pack(_BURIED, tube, lane + OFFSET, rank + OFFSET, task)


def lease_key(token: int) -> bytes:
    """Return the key of a lease."""
    return _lease.pack(_LEASE, token)


def timer_key(timer: OrderKey) -> bytes:
    """Return the key of a timer."""
    return _timer.pack(_TIMER, *timer)


def session_key(number: int) -> bytes:
    """Return the key of a session's record."""
    return _numbered.pack(SESSION, number)


def quarantine_key(tube: int) -> bytes:
    """Return the key of the record of a driver's failure in a tube."""
    return _tube.pack(QUARANTINE, tube)


def tube_owner_key(tube: int) -> bytes:
    """Return the key of the principal that has created a tube."""
    return _tube.pack(TUBE_OWNER, tube)


def tube_of_owner(key: bytes) -> int:
    """Parse the tube number from the key of the principal that has created a tube."""
    tube: int = _tube.unpack(key)[1]
    return tube


def schedule_key(name: str) -> bytes:
    """Return the key of a schedule's record."""
    return SCHEDULE + name.encode()


def consumer_key(name: str) -> bytes:
    """Return the key of the record of a change feed consumer."""
    return CONSUMER + name.encode()


def group_key(name: str) -> bytes:
    """Return the key of a group's record."""
    return GROUP + name.encode()


def member_key(prefix: bytes, number: int, member: tuple[int, int]) -> bytes:
    """Return the key of a task's membership in a numbered set of the kind ``prefix``."""
    return _member.pack(prefix, number, *member)


def member_of(key: bytes) -> tuple[int, int]:
    """Parse the tube number and the task id from the key of a membership."""
    _, _, tube, task = _member.unpack(key)
    return tube, task


def ending_key(serial: int) -> bytes:
    """Return the key of the record that a task with dependents has ended."""
    return _numbered.pack(ENDING, serial)


def request_key(bucket: int, request_id: str) -> bytes:
    """Return the key of a remembered request."""
    return _numbered.pack(REQUEST, bucket) + request_id.encode()


def unique_key(tube: int, key: Sequence[str]) -> bytes:
    """Return the key of a unique key's holder; a length precedes each part of the unique key."""
    parts = [_tube.pack(UNIQUE, tube)]
    for part in key:
        text = part.encode()
        parts += (_length.pack(len(text)), text)
    return b"".join(parts)


def failure_key(serial: int) -> bytes:
    """Return the key of the failure record of a deleted task."""
    return _FAILURE_RECORD + _serial.pack(serial)


def failed_task_key(tube: int, task: int) -> bytes:
    """Return the key of the serial number of a task's failure record."""
    return _FAILED_TASK + _holder.pack(tube, task)


def failed_key_key(tube: int, key: Sequence[str]) -> bytes:
    """Return the key of the serial number of the last failure record of a unique key."""
    return _FAILED_KEY + unique_key(tube, key)


def audit_key(number: int) -> bytes:
    """Return the key of the record of an act of management."""
    return _AUDIT_RECORD + _serial.pack(number)


def bulk_sweep_key(number: int) -> bytes:
    """Return the key of the record of a bulk sweep."""
    return _BULK_RECORD + _serial.pack(number)


def chunk_key(partition: int, end_seq: int) -> bytes:
    """Return the key of the change feed chunk that ends before ``end_seq``."""
    return _chunk.pack(FEED, partition, end_seq)


def partition_stop(partition: int) -> bytes:
    """Return the end (exclusive) of the keys of all chunks of a partition."""
    return _chunk.pack(FEED, partition, (1 << 64) - 1)


def prefix_stop(prefix: bytes) -> bytes:
    """Return the end (exclusive) of all keys with a prefix; its last byte must be below 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def order_scan(store: Store, prefix: bytes, tube: int) -> Callable[[OrderKey], Iterator[OrderKey]]:
    """Return a function that yields the stored entries of a tube above a given entry."""
    stop = _tube.pack(prefix, tube + 1)

    def scan(after: OrderKey) -> Iterator[OrderKey]:
        if after:
            lane, rank, task = after
            start = _order.pack(prefix[0], tube, lane + OFFSET, rank + OFFSET, task + 1)
        else:
            start = _tube.pack(prefix, tube)
        unpack = _order.unpack
        for key, _ in store.scan(start, stop):
            _, _, lane, rank, task = unpack(key)
            yield (lane - OFFSET, rank - OFFSET, task)

    return scan


def place_scan(store: Store, prefix: bytes) -> Callable[[OrderKey], Iterator[OrderKey]]:
    """Return a function that yields the entries of a sub-queue or type above a given entry."""
    start_of_place = len(prefix)
    stop = prefix + b"\xff" * (_place.size + 1)

    def scan(after: OrderKey) -> Iterator[OrderKey]:
        start = waiting_key(prefix, (*after[:2], after[2] + 1)) if after else prefix
        for key, _ in store.scan(start, stop):
            lane, rank, task = _place.unpack_from(key, start_of_place)
            yield (lane - OFFSET, rank - OFFSET, task)

    return scan


def timer_scan(store: Store) -> Callable[[OrderKey], Iterator[OrderKey]]:
    """Return a function that yields the stored timers above a given timer."""

    def scan(after: OrderKey) -> Iterator[OrderKey]:
        start = timer_key((*after[:3], after[3] + 1)) if after else TIMER
        unpack = _timer.unpack
        for key, _ in store.scan(start, prefix_stop(TIMER)):
            yield unpack(key)[1:]

    return scan
