"""The columns of a change.

A missing value is null: the state before a put, the state after a removal, and the sub-queue,
session, reason or type of a task that has none.
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
}
"""Spark type of each column, in order."""


def spark_schema(columns: Sequence[str]) -> str:
    """Return the schema of some columns in Spark's notation."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in columns)
