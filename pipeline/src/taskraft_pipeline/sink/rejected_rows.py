"""Write the rows that are not valid tasks into Parquet files, one file per version."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_pipeline.sink.task_rows import Reject

SCHEMA = pa.schema(
    [
        ("app", pa.string()),
        ("version", pa.int64()),
        ("tube", pa.string()),
        ("reason", pa.string()),
        ("message", pa.string()),
        ("payload", pa.binary()),
        ("options", pa.string()),
    ]
)
"""Columns of the files; ``options`` has the other columns of the row as JSON."""


def write_rejects(folder: str, app: str, version: int, rejects: Sequence[Reject]) -> Path:
    """Write or replace the file of one version, atomically; return its path."""
    place = Path(folder) / f"app={quote(app, safe='')}" / f"version={version:012d}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    rows = [_row(app, version, reject) for reject in rejects]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), unfinished)
    unfinished.replace(place)
    return place


def _row(app: str, version: int, reject: Reject) -> dict[str, Any]:
    row = dict(reject.row)
    tube, payload = row.pop("tube", None), row.pop("payload", None)
    if isinstance(payload, str):
        payload = payload.encode()
    return {
        "app": app,
        "version": version,
        "tube": tube,
        "reason": reject.reason,
        "message": reject.message,
        "payload": payload,
        "options": json.dumps(row, default=repr),
    }
