"""Remove the texts of some tasks from the files of a journal.

The events stay, with their times and states, so the proof of completeness holds. Columns that can
contain data of a person become null. The feed has no payloads, so no other data exists.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.batch_content import sync
from taskraft_pipeline.journal.compaction import delete_batches, delete_replaced, describe_file
from taskraft_pipeline.journal.generation import ErasedTask, EventsFile
from taskraft_pipeline.journal.journal import publish, sync_folder

if TYPE_CHECKING:
    from collections.abc import Collection

    from taskraft_pipeline.journal.journal import Journal

ERASED: Final = ("subqueue", "session", "type", "reason", "message", "fingerprint", "target")
"""Columns that become null."""


def erase(journal: Journal, tube: str, task_ids: Collection[int]) -> int:
    """Remove the texts of some tasks of a tube; return the number of changed events.

    A new generation is published, and all files with the texts are deleted at once, also files that
    running queries read.

    Args:
        journal: the journal; the caller holds its locks for exports and for compactions.
        tube: name of the tube.
        task_ids: ids of the tasks.

    Raises:
        JournalRefused: a batch is not compacted yet.
    """
    newest = journal.generation()
    if newest is None or any(True for _ in journal.manifests(newest.last_batch + 1)):
        raise JournalRefused(f"{journal.root}: some batches are not compacted; compact first")
    number = newest.number + 1
    wanted = pa.array(sorted(task_ids), pa.int64())
    files, changed = [], 0
    for file in newest.files:
        rewritten, events = (None, 0)
        if file.tube == tube:
            rewritten, events = _rewrite(journal, file, number, wanted)
        files.append(rewritten or file)
        changed += events
    now_ms = time.time_ns() // 1_000_000
    generation = replace(
        newest,
        number=number,
        published_ms=now_ms,
        files=tuple(sorted(files, key=lambda one: one.path)),
        erased=(*newest.erased, *(ErasedTask(tube, one, now_ms) for one in sorted(task_ids))),
    )
    publish(journal.generation_path(number), generation.to_json())
    delete_replaced(journal, grace_ms=0)
    delete_batches(journal, generation.last_batch)
    return changed


def _rewrite(
    journal: Journal, file: EventsFile, number: int, task_ids: pa.Array
) -> tuple[EventsFile | None, int]:
    """Write a file without the texts of some tasks; None if it has none of these tasks."""
    with pq.ParquetFile(journal.root / file.path) as source:
        table = source.read()
    hit = pc.is_in(table["task_id"], value_set=task_ids)
    events = int(pc.sum(hit).as_py() or 0)
    if not events:
        return None, 0
    for name in ERASED:
        place = table.schema.get_field_index(name)
        column = table.column(place)
        erased = pc.if_else(hit, pa.scalar(None, column.type), column)
        table = table.set_column(place, table.schema.field(place), erased)
    parts = Path(file.path).parts
    path = journal.root / "events" / f"gen={number:012d}" / Path(*parts[2:])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    sync(path)
    sync_folder(path.parent)
    return describe_file(path, journal.root), events
