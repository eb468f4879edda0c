"""State the layout of a task group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_service.queue.codecs.field_table import FieldTable
from taskraft_service.queue.codecs.fields import Blob, Flags, Number, Present, Size, Text, Texts
from taskraft_service.queue.codecs.refusal_codec import (
    flattened,
    kept_refusal,
    message_of,
    metadata_of,
    reason_of,
    unflattened,
)
from taskraft_service.queue.entities.group import GroupState, GroupTask, TaskGroup
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.store.task_indexes import set_member


def _metadata(group: TaskGroup) -> Sequence[str]:
    return flattened(metadata_of(group))


def _refusal(reason: int, message: str, metadata: Sequence[str]) -> Refusal | None:
    return kept_refusal(reason, message, unflattened(metadata))


def _group(number: int, name: str, created_ms: int, **others: object) -> TaskGroup:
    group = TaskGroup(number, name, created_ms)
    for attribute, content in others.items():
        setattr(group, attribute, content)
    return group


GROUP_RECORD: Final = FieldTable(
    _group,
    Number("number", "Q"),
    Number("state", "B", GroupState),
    Flags(
        "B",
        Present("end_task"),
        Present("abort_task"),
        "only_if_processed",
        "revoke",
        "sweeping",
    ),
    Number("open", "Q"),
    Number("processed", "Q"),
    Number("failed", "Q"),
    Number("cancelled", "Q"),
    Number("created_ms", "q"),
    Number("ended_ms", "q"),
    Number("last_task_id", "Q"),
    Number("refusal.reason", "B", of=reason_of),
    Size("H", "refusal.metadata"),
    Number("cursor.tube", "I", of="cursor[0]"),
    Number("cursor.task_id", "Q", of="cursor[1]"),
    Text("name"),
    Text("end_task.tube"),
    Blob("end_task.spec"),
    Text("abort_task.tube"),
    Blob("abort_task.spec"),
    Text("refusal.message", of=message_of),
    Texts("refusal.metadata", of=_metadata),
    parts={
        "end_task": GroupTask,
        "abort_task": GroupTask,
        "cursor": set_member,
        "refusal": _refusal,
    },
)
