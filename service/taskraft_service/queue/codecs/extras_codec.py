"""Encode and decode the extras of a task and a retry policy.

Written by hand instead of with a ``FieldTable``: tasks with extras are read and written one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import (
    Awaited,
    Extras,
    Failure,
    OnDependencyFailure,
    TaskOrigin,
    TaskProgress,
    Waiting,
)

_head = Struct(">HBIqHHQQH")
"""Flags, outcome, times buried, end of retention, progress, parts of the key, group number; origin:
task id, parts of the key.
"""
_retry = Struct(">IqIqBBB")
_text = Struct(">I")
_dependents = Struct(">Q")
_waiting = Struct(">BqH")
"""Action on failure, delay, number of open dependencies."""
_awaited = Struct(">QQ")

RETRY_BYTES: Final = _retry.size
_FAILED: Final = 1
_FATAL: Final = 2
_PROGRESS: Final = 4
_RESULT: Final = 8
_RETRY: Final = 16
_CANCEL: Final = 32
_ORIGIN: Final = 64
_DEPENDENTS: Final = 128
_WAITING: Final = 256

_TEXTS: Final = 7
"""Number of texts before the parts of the keys."""


def write_retry(policy: RetryPolicy) -> bytes:
    """Return a retry policy as bytes; always ``RETRY_BYTES`` long."""
    return _retry.pack(
        policy.attempts_max,
        policy.backoff_ms,
        policy.factor_percent,
        policy.backoff_ms_max,
        policy.jitter_percent,
        policy.exhausted,
        policy.position,
    )


def read_retry(record: bytes, at: int) -> RetryPolicy:
    """Return the retry policy that begins at ``at``."""
    attempts, backoff_ms, factor, backoff_ms_max, jitter, exhausted, place = _retry.unpack_from(
        record, at
    )
    return RetryPolicy(
        attempts,
        backoff_ms,
        factor,
        backoff_ms_max,
        jitter,
        Exhausted(exhausted),
        Position(place),
    )


def _write_waiting(waiting: Waiting) -> bytes:
    """Return open dependencies as bytes."""
    parts = [_waiting.pack(waiting.on_failure, waiting.delay_ms, len(waiting.open))]
    parts += [_awaited.pack(awaited.number, awaited.id) for awaited in waiting.open]
    return b"".join(parts) + write_texts([awaited.tube.encode() for awaited in waiting.open])


def _read_waiting(record: bytes, at: int) -> tuple[Waiting, int]:
    """Return the open dependencies that begin at ``at``, and the position after them."""
    on_failure, delay_ms, count = _waiting.unpack_from(record, at)
    at += _waiting.size
    end = at + count * _awaited.size
    numbers = _awaited.iter_unpack(record[at:end])
    tubes, at = read_texts(record, end, count)
    awaited = tuple(
        Awaited(number, tube.decode(), task_id)
        for (number, task_id), tube in zip(numbers, tubes, strict=True)
    )
    return Waiting(awaited, OnDependencyFailure(on_failure), delay_ms), at


def write_texts(texts: Sequence[bytes]) -> bytes:
    """Return byte strings one after the other, each with its length in front."""
    return b"".join(part for text in texts for part in (_text.pack(len(text)), text))


def read_texts(record: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Return ``count`` byte strings that begin at ``at``, and the position after them."""
    texts = []
    for _ in range(count):
        (length,) = _text.unpack_from(record, at)
        at += _text.size
        texts.append(record[at : at + length])
        at += length
    return texts, at


def write_extras(extras: Extras) -> bytes:
    """Return the extras as bytes, the same on all replicas."""
    failure, progress, result = extras.failure, extras.progress, extras.result
    origin = extras.origin
    origin_key = origin.unique_key if origin is not None else ()
    flags = (
        (_FAILED if failure is not None else 0)
        | (_FATAL if failure is not None and failure.fatal else 0)
        | (_PROGRESS if progress is not None else 0)
        | (_RESULT if result is not None else 0)
        | (_RETRY if extras.retry is not None else 0)
        | (_CANCEL if extras.cancel_requested else 0)
        | (_ORIGIN if origin is not None else 0)
        | (_DEPENDENTS if extras.dependents else 0)
        | (_WAITING if extras.waiting is not None else 0)
    )
    head = _head.pack(
        flags,
        extras.outcome,
        extras.times_buried,
        extras.retain_until_ms,
        progress.basis_points if progress is not None else 0,
        len(extras.unique_key),
        extras.group_number,
        origin.task_id if origin is not None else 0,
        len(origin_key),
    )
    texts = write_texts(
        (
            failure.type.encode() if failure is not None else b"",
            failure.message.encode() if failure is not None else b"",
            progress.note.encode() if progress is not None else b"",
            result or b"",
            extras.result_content_type.encode(),
            extras.group.encode(),
            origin.tube.encode() if origin is not None else b"",
            *(part.encode() for part in (*extras.unique_key, *origin_key)),
        )
    )
    return b"".join(
        (
            head,
            texts,
            write_retry(extras.retry) if extras.retry is not None else b"",
            _dependents.pack(extras.dependents) if extras.dependents else b"",
            _write_waiting(extras.waiting) if extras.waiting is not None else b"",
        )
    )


def read_extras(record: bytes, at: int) -> tuple[Extras, int]:
    """Return the extras that begin at ``at``, and the position after them."""
    (
        flags,
        outcome,
        times_buried,
        retain_until_ms,
        points,
        parts,
        group_number,
        origin_id,
        origin_parts,
    ) = _head.unpack_from(record, at)
    texts, at = read_texts(record, at + _head.size, _TEXTS + parts + origin_parts)
    kind, message, note, result, result_type, group, origin_tube = texts[:_TEXTS]
    keys = tuple(part.decode() for part in texts[_TEXTS:])
    retry = None
    if flags & _RETRY:
        retry = read_retry(record, at)
        at += RETRY_BYTES
    dependents, waiting = 0, None
    if flags & _DEPENDENTS:
        (dependents,) = _dependents.unpack_from(record, at)
        at += _dependents.size
    if flags & _WAITING:
        waiting, at = _read_waiting(record, at)
    failure = Failure(kind.decode(), message.decode(), bool(flags & _FATAL))
    origin = TaskOrigin(origin_tube.decode(), origin_id, keys[parts:])
    return (
        Extras(
            failure=failure if flags & _FAILED else None,
            times_buried=times_buried,
            progress=TaskProgress(points, note.decode()) if flags & _PROGRESS else None,
            result=result if flags & _RESULT else None,
            result_content_type=result_type.decode(),
            outcome=TaskOutcome(outcome),
            retain_until_ms=retain_until_ms,
            unique_key=keys[:parts],
            group=group.decode(),
            group_number=group_number,
            retry=retry,
            cancel_requested=bool(flags & _CANCEL),
            origin=origin if flags & _ORIGIN else None,
            dependents=dependents,
            waiting=waiting,
        ),
        at,
    )
