"""The columns of a change, and of a task in a snapshot.

A missing value is null: the state before a put, the state after a removal, the sub-queue, session
or type of a task that has none, and reason, message, fingerprint and target without a failure or
a move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLUMNS: Final[Mapping[str, str]] = {
    "feed_partition": "INT",
    "seq": "BIGINT",
    "revision": "BIGINT",
    "place": "INT",
    "ts": "TIMESTAMP",
    "tube": "STRING",
    "task_id": "BIGINT",
    "kind": "STRING",
    "from_state": "STRING",
    "to_state": "STRING",
    "attempt": "INT",
    "priority": "BIGINT",
    "created_ts": "TIMESTAMP",
    "since_ts": "TIMESTAMP",
    "subqueue": "STRING",
    "session": "STRING",
    "reason": "STRING",
    "type": "STRING",
    "payload_bytes": "INT",
    "outcome": "STRING",
    "message": "STRING",
    "fingerprint": "BIGINT",
    "target": "STRING",
    "attempt_failed": "BOOLEAN",
}
"""Spark type of each column, in order."""

INSTANTS: Final[Mapping[str, str]] = {
    "ts": "at_ms",
    "created_ts": "created_ms",
    "since_ts": "since_ms",
}
"""Columns whose array in a chunk has another name, because the API counts milliseconds."""
OF_THE_CHUNK: Final = frozenset(("feed_partition", "seq"))
"""Columns that each chunk contains."""

TASK_COLUMNS: Final[Mapping[str, str]] = {
    "revision": "BIGINT",
    "tube": "STRING",
    "task_id": "BIGINT",
    "state": "STRING",
    "attempt": "INT",
    "priority": "BIGINT",
    "created_ts": "TIMESTAMP",
    "since_ts": "TIMESTAMP",
    "visible_ts": "TIMESTAMP",
    "expire_ts": "TIMESTAMP",
    "lease_until_ts": "TIMESTAMP",
    "retain_until_ts": "TIMESTAMP",
    "ttr_ms": "BIGINT",
    "ttl_ms": "BIGINT",
    "subqueue": "STRING",
    "type": "STRING",
    "unique_key": "STRING",
    "task_group": "STRING",
    "outcome": "STRING",
    "failed_attempts": "INT",
    "times_buried": "INT",
    "reason": "STRING",
    "message": "STRING",
    "content_type": "STRING",
    "payload": "BINARY",
}
"""Spark type of each column of a task, in order."""
PAYLOAD: Final = "payload"
"""Column that is read only if the option ``columns`` names it."""


def arrays_of(columns: Sequence[str]) -> Sequence[str]:
    """Return the names of the arrays that a chunk needs for some columns (empty: all)."""
    arrays = [INSTANTS.get(name, name) for name in columns if name not in OF_THE_CHUNK]
    return arrays or (["seq"] if columns else [])


def spark_schema(columns: Sequence[str], types: Mapping[str, str] = COLUMNS) -> str:
    """Return the schema of some columns in Spark's notation."""
    return ", ".join(f"`{name}` {types[name]}" for name in columns)
