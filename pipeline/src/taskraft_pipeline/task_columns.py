"""Convert the tasks of a snapshot into an Arrow record batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from taskraft.v1.task_pb2 import Task
from taskraft_pipeline.codec import (
    INT32,
    INT64,
    arrow_schema,
    bytes_array,
    instant_array,
    number_array,
    text_array,
)
from taskraft_pipeline.schema import TASK_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

_STATES: Final = {number: name.lower() for name, number in Task.State.items()}
_OUTCOMES: Final = {number: name.lower() if number else "" for name, number in Task.Outcome.items()}


def _key(task: Task) -> str:
    parts = list(task.spec.unique_key)
    return json.dumps(parts, ensure_ascii=False) if parts else ""


TEXTS: Final[Mapping[str, Callable[[Task], str]]] = {
    "tube": lambda task: task.tube,
    "state": lambda task: _STATES[task.state],
    "subqueue": lambda task: task.spec.subqueue,
    "type": lambda task: task.spec.type,
    "unique_key": _key,
    "task_group": lambda task: task.spec.group,
    "outcome": lambda task: _OUTCOMES[task.outcome],
    "reason": lambda task: task.failure.type,
    "message": lambda task: task.failure.message,
    "content_type": lambda task: task.spec.content_type,
}
NUMBERS: Final[Mapping[str, Callable[[Task], int]]] = {
    "task_id": lambda task: task.id,
    "attempt": lambda task: task.attempt,
    "priority": lambda task: task.priority,
    "created_ts": lambda task: task.created_ms,
    "since_ts": lambda task: task.since_ms,
    "visible_ts": lambda task: task.visible_at_ms,
    "expire_ts": lambda task: task.expire_at_ms,
    "lease_until_ts": lambda task: task.lease_until_ms,
    "retain_until_ts": lambda task: task.retain_until_ms,
    "ttr_ms": lambda task: task.ttr_ms,
    "ttl_ms": lambda task: task.ttl_ms,
    "failed_attempts": lambda task: task.failed_attempts,
    "times_buried": lambda task: task.times_buried,
}


def task_batch(tasks: Sequence[Task], names: Sequence[str], revision: int) -> pa.RecordBatch:
    """Return columns of some tasks; empty strings, and instants that are not set, become null."""
    arrays = [_column(tasks, name, revision) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(names, TASK_COLUMNS))


def _column(tasks: Sequence[Task], name: str, revision: int) -> pa.Array:
    if name == "revision":
        return number_array(np.full(len(tasks), revision, INT64))
    if name == "payload":
        payloads = [task.spec.payload for task in tasks]
        lengths = np.array([0, *map(len, payloads)], INT32)
        present = np.packbits(np.ones(len(payloads), bool), bitorder="little")
        return bytes_array(payloads, lengths, present, pa.binary())
    if name in TEXTS:
        return text_array([TEXTS[name](task) for task in tasks])
    numbers = [NUMBERS[name](task) for task in tasks]
    if TASK_COLUMNS[name] == "INT":
        return number_array(np.array(numbers, INT32))
    found = np.array(numbers, INT64)
    return instant_array(found) if TASK_COLUMNS[name] == "TIMESTAMP" else number_array(found)
