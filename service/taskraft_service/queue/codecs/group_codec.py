"""Encode and decode the record of a group."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.codecs.extras_codec import read_texts, write_texts
from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.entities.group import TaskGroup
from taskraft_service.queue.entities.group_view import GroupState, GroupTask
from taskraft_service.queue.entities.refusal import Reason, Refusal

_FLAGS: Final = (
    (1, "end_task"),
    (2, "abort_task"),
    (4, "only_if_processed"),
    (8, "revoke"),
    (16, "sweeping"),
)
"""Bits of the flags: set if the group has such a task, or if the attribute is true."""
_HAS_END: Final = 1
_HAS_ABORT: Final = 2
_TEXTS: Final = 6
_head: Final = FieldTable((("number", "Q", int), ("state", "B", GroupState)), "B")
"""The number and the state, then the flags."""
_counts: Final = FieldTable(
    (
        ("open", "Q", int),
        ("processed", "Q", int),
        ("failed", "Q", int),
        ("cancelled", "Q", int),
        ("created_ms", "q", int),
        ("ended_ms", "q", int),
        ("last_task_id", "Q", int),
    ),
    "BHIQ",
)
"""The numbers of the group, then the reason of the refusal, its texts, and the cursor."""


def write_group(group: TaskGroup) -> bytes:
    """Return the record of a group."""
    end, abort, refusal = group.end_task, group.abort_task, group.refusal
    flags = sum(bit for bit, name in _FLAGS if getattr(group, name))
    details = [text for pair in refusal.metadata.items() for text in pair] if refusal else []
    reason = refusal.reason if refusal is not None else 0
    head = _head.write(group, flags) + _counts.write(group, reason, len(details), *group.cursor)
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
    fields, (flags,) = _head.read(record)
    counts, (reason, details, tube, task) = _counts.read(record, _head.size)
    texts, _ = read_texts(record, _head.size + _counts.size, _TEXTS + details)
    name, end_tube, end_spec, abort_tube, abort_spec, message = texts[:_TEXTS]
    group = TaskGroup(fields["number"], name.decode(), 0)
    group.state = fields["state"]
    for field, count in counts.items():
        setattr(group, field, count)
    if flags & _HAS_END:
        group.end_task = GroupTask(end_tube.decode(), end_spec)
    if flags & _HAS_ABORT:
        group.abort_task = GroupTask(abort_tube.decode(), abort_spec)
    for bit, name_of_flag in _FLAGS[2:]:
        setattr(group, name_of_flag, bool(flags & bit))
    group.cursor = (tube, task)
    if reason:
        pairs = [text.decode() for text in texts[_TEXTS:]]
        metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
        group.refusal = Refusal(Reason(reason), message.decode(), metadata)
    return group
