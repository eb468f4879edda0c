"""State the columns of a change, once, for Arrow and for Spark.

One rule for what is absent: it is null. A put comes from no state, a removed task goes to none, a
task without a sub-queue, session, reason or type has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMESTAMP: Final = pa.timestamp("us", "UTC")
"""The one type of a Spark TIMESTAMP; with another unit or zone Spark refuses the batch."""

COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "feed_partition": pa.int32(),
    "seq": pa.int64(),
    "revision": pa.int64(),
    "place": pa.int32(),
    "ts": TIMESTAMP,
    "tube": pa.string(),
    "task_id": pa.int64(),
    "kind": pa.string(),
    "from_state": pa.string(),
    "to_state": pa.string(),
    "attempt": pa.int32(),
    "priority": pa.int64(),
    "created_ts": TIMESTAMP,
    "since_ts": TIMESTAMP,
    "subqueue": pa.string(),
    "session": pa.string(),
    "reason": pa.string(),
    "type": pa.string(),
    "payload_bytes": pa.int32(),
}
"""Every column of a change and its type, in order."""

SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    TIMESTAMP: "TIMESTAMP",
}
"""What Spark calls the types above."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of some columns, which must equal the one that Spark derives."""
    return pa.schema([(name, COLUMNS[name]) for name in columns])


def spark_schema(columns: Sequence[str]) -> str:
    """Return the same schema in Spark's notation."""
    return ", ".join(f"`{name}` {SPARK_TYPES[COLUMNS[name]]}" for name in columns)
