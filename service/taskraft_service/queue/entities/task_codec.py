"""Encode and decode the record of a task.

A record has a head. Flags in the head tell which further parts are present: times, attempts and
extras. Most waiting tasks have none of these parts, so they are fast to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import STATES, TaskOutcome
from taskraft_service.queue.entities.task_view import (
    NO_EXTRAS,
    AttemptFailure,
    Awaited,
    Extras,
    Failure,
    OnDependencyFailure,
    TaskOrigin,
    TaskProgress,
    Waiting,
)
from taskraft_service.queue.entities.tube import BODY_INLINE_BYTES_MAX, QueueTask, QueueTube, Stored
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import (
    Blob,
    Flags,
    Items,
    Nested,
    Number,
    Optional,
    Present,
    Rows,
    Size,
    Text,
    Texts,
)

RETRY: Final = FieldTable(
    RetryPolicy,
    Number("attempts_max", "I"),
    Number("backoff_ms", "q"),
    Number("factor_percent", "I"),
    Number("backoff_ms_max", "q"),
    Number("jitter_percent", "B"),
    Number("exhausted", "B", Exhausted),
    Number("position", "B", Position),
)


def _numbers_of(waiting: Waiting) -> Sequence[tuple[int, int]]:
    return [(awaited.number, awaited.id) for awaited in waiting.open]


def _tubes_of(waiting: Waiting) -> Sequence[str]:
    return [awaited.tube for awaited in waiting.open]


def _waiting(
    on_failure: OnDependencyFailure,
    delay_ms: int,
    numbers: Sequence[tuple[int, int]],
    tubes: Sequence[str],
) -> Waiting:
    awaited = [
        Awaited(number, tube, task_id)
        for (number, task_id), tube in zip(numbers, tubes, strict=True)
    ]
    return Waiting(tuple(awaited), on_failure, delay_ms)


_WAITING: Final = FieldTable(
    _waiting,
    Number("on_failure", "B", OnDependencyFailure),
    Number("delay_ms", "q"),
    Size("H", "numbers", "tubes"),
    Rows("numbers", "QQ", of=_numbers_of),
    Texts("tubes", of=_tubes_of),
)
"""Open dependencies: first the set and the task id of each dependency, then the tube of each."""

_ATTEMPT_FAILURE: Final = FieldTable(
    AttemptFailure,
    Number("attempt", "I"),
    Number("at_ms", "q"),
    Number("fatal", "?"),
    Text("type"),
    Text("message"),
)

_OWNER: Final = FieldTable(lambda text: text, Text("text", of=str))

EXTRAS: Final = FieldTable(
    Extras,
    Flags(
        "H",
        Present("failure"),
        "failure.fatal",
        Present("progress"),
        Present("result"),
        Present("retry"),
        "cancel_requested",
        Present("origin"),
        Present("dependents"),
        Present("waiting"),
        Present("owner"),
        Present("lease_ms"),
    ),
    Number("outcome", "B", TaskOutcome),
    Number("times_buried", "I"),
    Number("failed_attempts", "I"),
    Number("retain_until_ms", "q"),
    Number("progress.basis_points", "H"),
    Size("H", "unique_key"),
    Size("B", "failures"),
    Number("group_number", "Q"),
    Number("origin.task_id", "Q"),
    Size("H", "origin.unique_key"),
    Text("failure.type"),
    Text("failure.message"),
    Text("progress.note"),
    Blob("result"),
    Text("result_content_type"),
    Text("group"),
    Text("origin.tube"),
    Texts("unique_key"),
    Texts("origin.unique_key"),
    Items("failures", _ATTEMPT_FAILURE),
    Optional(Nested("retry", RETRY)),
    Optional(Number("dependents", "Q")),
    Optional(Nested("waiting", _WAITING)),
    Optional(Nested("owner", _OWNER)),
    Optional(Number("lease_ms", "Q")),
    parts={"failure": Failure, "progress": TaskProgress, "origin": TaskOrigin},
)

_head = Struct(">BBqqqqqIHH")
"""State, flags, priority, lane, rank, created, since, bytes of payload, type and sub-queue."""
_times = Struct(">qqqQQ")
"""Visible at, expires at, leased until, time to live, time to run."""
_attempts = Struct(">IQQ")
"""Attempts, token, number of the session."""
_taker_size = Struct(">H")
"""Bytes of the name of the principal that has taken the task without a session."""

CURRENT: Final = Stored.CURRENT
NOTHING: Final = Stored.NOTHING
_HEAD_BYTES: Final = _head.size
_BODY_APART: Final = 1
_HAS_EXTRAS: Final = 2
_HAS_TIMES: Final = 4
_HAS_ATTEMPTS: Final = 8
_HAS_TAKER: Final = 16


def write_task(task: QueueTask) -> bytes:
    """Return the record of a task, the same bytes on all replicas."""
    extras, body = task.extras, task.body
    lane, rank, _ = task.order
    task_type, subqueue = task.type.encode(), task.subqueue.encode()
    times = attempts = rare = b""
    flags = 0
    if body is None or len(body) > BODY_INLINE_BYTES_MAX:
        flags, body = _BODY_APART, b""
    if extras is not NO_EXTRAS:
        flags |= _HAS_EXTRAS
        rare = EXTRAS.write(extras)
    if task.has_times:
        flags |= _HAS_TIMES
        times = _times.pack(
            task.visible_at_ms,
            task.expire_at_ms,
            task.lease_until_ms,
            task.ttl_ms,
            task.ttr_ms,
        )
    if task.attempt or task.token:
        flags |= _HAS_ATTEMPTS
        session = task.session
        number = session.number if session is not None else 0
        attempts = _attempts.pack(task.attempt, task.token, number)
        if task.taker:
            flags |= _HAS_TAKER
            taker = task.taker.encode()
            attempts += _taker_size.pack(len(taker)) + taker
    head = _head.pack(
        task.state,
        flags,
        task.priority,
        lane,
        rank,
        task.created_ms,
        task.since_ms,
        task.payload_bytes,
        len(task_type),
        len(subqueue),
    )
    return b"".join((head, times, attempts, task_type, subqueue, rare, body))


def read_task(tube: QueueTube, task_id: int, record: bytes) -> tuple[QueueTask, int]:
    """Return the task of a record, and the number of its session (0: none).

    A body that is stored separately is not read. Tasks beyond the memory limit are read one by one,
    so this is a hot path of consumers: fields are assigned directly, without ``Task.__init__``.
    """
    task = QueueTask.__new__(QueueTask)
    (
        state,
        flags,
        task.priority,
        lane,
        rank,
        task.created_ms,
        task.since_ms,
        task.payload_bytes,
        type_bytes,
        subqueue_bytes,
    ) = _head.unpack_from(record)
    at = _HEAD_BYTES
    if flags & _HAS_TIMES:
        (
            task.visible_at_ms,
            task.expire_at_ms,
            task.lease_until_ms,
            task.ttl_ms,
            task.ttr_ms,
        ) = _times.unpack_from(record, at)
        at += _times.size
    else:
        task.visible_at_ms = task.expire_at_ms = task.lease_until_ms = NEVER_MS
        task.ttl_ms = task.ttr_ms = FOREVER_MS
    session_number = 0
    if flags & _HAS_ATTEMPTS:
        task.attempt, task.token, session_number = _attempts.unpack_from(record, at)
        at += _attempts.size
    else:
        task.attempt = task.token = 0
    if flags & _HAS_TAKER:
        task.taker, at = _read_taker(record, at)
    else:
        task.taker = ""
    end = at + type_bytes
    task.type = record[at:end].decode() if type_bytes else ""
    at, end = end, end + subqueue_bytes
    task.subqueue = record[at:end].decode() if subqueue_bytes else ""
    if flags & _HAS_EXTRAS:
        task.extras, end = EXTRAS.read(record, end)
    else:
        task.extras = NO_EXTRAS
    apart = flags & _BODY_APART
    task.tube = tube
    task.id = task_id
    task.state = STATES[state]
    task.order = (lane, rank, task_id)
    task.session = None
    task.dirty = False
    task.body = None if apart else record[end:]
    # A task without flags has no deadline.
    task.timer = task.due() if flags else None
    where = (task.state, task.order, task.token, task.subqueue, task.type)
    task.written = (where, task.timer, CURRENT if apart else NOTHING)
    return task, session_number


def read_type(record: bytes) -> str:
    """Return the type of the task of a record."""
    _, flags, *_, type_bytes, _ = _head.unpack_from(record)
    at = _HEAD_BYTES
    if flags & _HAS_TIMES:
        at += _times.size
    if flags & _HAS_ATTEMPTS:
        at += _attempts.size
    if flags & _HAS_TAKER:
        _, at = _read_taker(record, at)
    return record[at : at + type_bytes].decode()


def _read_taker(record: bytes, at: int) -> tuple[str, int]:
    """Return the taker at a position of a record, and the position behind the taker."""
    (size,) = _taker_size.unpack_from(record, at)
    at += _taker_size.size
    return record[at : at + size].decode(), at + size


def without_session(record: bytes) -> bytes:
    """Return a task record with the number of the session set to 0.

    The record of a task that is not TAKEN may name a session that has ended.
    """
    flags = record[1]
    if not flags & _HAS_ATTEMPTS:
        return record
    end = _HEAD_BYTES + (_times.size if flags & _HAS_TIMES else 0) + _attempts.size
    return record[: end - 8] + bytes(8) + record[end:]
