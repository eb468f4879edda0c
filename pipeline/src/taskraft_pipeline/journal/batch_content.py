"""Read the Parquet files of a batch, and check that they have every event exactly once."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.journal import sync_folder
from taskraft_pipeline.journal.manifest import DataFile, HeldRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

INSPECTED: Final = ["feed_partition", "seq", "ts"]


@dataclass(slots=True, frozen=True)
class BatchContent:
    """Content of the files of a batch; times in ms, 0 without events."""

    held: Mapping[int, HeldRange]
    first_ms: int
    last_ms: int
    files: tuple[DataFile, ...]


def inspect(folder: Path, root: Path, *, is_synced: bool = False) -> BatchContent:
    """Read the files of a batch and return their content.

    Every sequence number is checked, so a missing or duplicate event is detected.

    Args:
        folder: folder of the batch.
        root: folder of the journal; the paths of the files are relative to it.
        is_synced: fsync the files, which Spark does not do.

    Raises:
        JournalRefused: a sequence number is missing or duplicate.
    """
    files, tables = [], []
    for path in sorted(folder.rglob("*.parquet")):
        data = path.read_bytes()
        table = read_columns(data, INSPECTED)
        place = path.relative_to(root).as_posix()
        files.append(DataFile(place, table.num_rows, len(data), hashlib.sha256(data).hexdigest()))
        tables.append(table)
        if is_synced:
            sync(path)
    if is_synced and folder.exists():
        for inner in (folder, *folder.glob("date=*")):
            sync_folder(inner)
        sync_folder(folder.parent)
    if not any(table.num_rows for table in tables):
        return BatchContent({}, 0, 0, tuple(files))
    whole = pa.concat_tables(tables)
    times_ms = whole["ts"].cast(pa.int64()).to_numpy() // 1_000
    partitions, numbers = whole["feed_partition"].to_numpy(), whole["seq"].to_numpy()
    held = {
        int(partition): dense_range(numbers[partitions == partition], folder)
        for partition in np.unique(partitions)
    }
    return BatchContent(held, int(times_ms.min()), int(times_ms.max()), tuple(files))


def read_columns(data: bytes, columns: Sequence[str]) -> pa.Table:
    """Return columns of a Parquet file, read in this thread.

    The threads of Arrow sometimes abort a process that ends soon after their work.
    """
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        return file.read(columns=list(columns), use_threads=False)


def dense_range(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], folder: Path) -> HeldRange:
    """Return the range of sequence numbers without gaps.

    Raises:
        JournalRefused: a sequence number is missing or duplicate.
    """
    ordered = np.sort(numbers)
    if not (np.diff(ordered) == 1).all():
        raise JournalRefused(f"{folder}: some sequence numbers are missing or duplicate")
    return HeldRange(int(ordered[0]), int(ordered[-1]), len(ordered))


def sync(path: Path) -> None:
    """Fsync a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
