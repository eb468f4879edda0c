"""Write a group as its record, and read it back."""

from __future__ import annotations

from operator import attrgetter
from struct import Struct
from typing import Final

from taskraft_service.queue.codecs.extras_codec import read_texts, write_texts
from taskraft_service.queue.entities.group import TaskGroup
from taskraft_service.queue.entities.group_view import GroupState, GroupTask
from taskraft_service.queue.entities.refusal import Reason, Refusal

_record: Final = Struct(">QBBQQQQqqQBHIQ")
_HAS_END: Final = 1
_HAS_ABORT: Final = 2
_ONLY_IF_PROCESSED: Final = 4
_REVOKE: Final = 8
_SWEEPING: Final = 16
_TEXTS: Final = 6
_NUMBERS: Final = (
    "open",
    "processed",
    "failed",
    "cancelled",
    "created_ms",
    "ended_ms",
    "last_task_id",
)
_numbers_of: Final = attrgetter(*_NUMBERS)


def write_group(group: TaskGroup) -> bytes:
    """Return the record of a group."""
    end, abort, refusal = group.end_task, group.abort_task, group.refusal
    flags = (
        (_HAS_END if end is not None else 0)
        | (_HAS_ABORT if abort is not None else 0)
        | (_ONLY_IF_PROCESSED if group.only_if_processed else 0)
        | (_REVOKE if group.revoke else 0)
        | (_SWEEPING if group.sweeping else 0)
    )
    details = [text for pair in refusal.metadata.items() for text in pair] if refusal else []
    head = _record.pack(
        group.number,
        group.state,
        flags,
        *_numbers_of(group),
        refusal.reason if refusal is not None else 0,
        len(details),
        *group.cursor,
    )
    return head + write_texts(
        (
            group.name.encode(),
            end.tube.encode() if end is not None else b"",
            end.spec if end is not None else b"",
            abort.tube.encode() if abort is not None else b"",
            abort.spec if abort is not None else b"",
            refusal.message.encode() if refusal is not None else b"",
            *(text.encode() for text in details),
        )
    )


def read_group(record: bytes) -> TaskGroup:
    """Return the group of a record."""
    number, state, flags, *numbers, reason, details, tube, task = _record.unpack_from(record)
    texts, _ = read_texts(record, _record.size, _TEXTS + details)
    name, end_tube, end_spec, abort_tube, abort_spec, message = texts[:_TEXTS]
    group = TaskGroup(number, name.decode(), 0)
    group.state = GroupState(state)
    for field, value in zip(_NUMBERS, numbers, strict=True):
        setattr(group, field, value)
    if flags & _HAS_END:
        group.end_task = GroupTask(end_tube.decode(), end_spec)
    if flags & _HAS_ABORT:
        group.abort_task = GroupTask(abort_tube.decode(), abort_spec)
    group.only_if_processed = bool(flags & _ONLY_IF_PROCESSED)
    group.revoke = bool(flags & _REVOKE)
    group.sweeping = bool(flags & _SWEEPING)
    group.cursor = (tube, task)
    if reason:
        pairs = [text.decode() for text in texts[_TEXTS:]]
        metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
        group.refusal = Refusal(Reason(reason), message.decode(), metadata)
    return group
