"""Merge the files of many batches into large files by date and tube.

A compaction rewrites the dates that have new batches, and keeps the files of all other dates. It
publishes a new generation in one step, so readers see the old or the new files. An export may run
at the same time.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.batch_content import read_columns, sync
from taskraft_pipeline.journal.generation import EventsFile, Generation
from taskraft_pipeline.journal.journal import numbered_folders, publish, spark_path, sync_folder
from taskraft_pipeline.journal.loading import read_files
from taskraft_pipeline.journal.sequence_digest import SequenceDigest
from taskraft_pipeline.spark_session import described

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.manifest import Manifest

FILE_BYTES: Final = 192 * 1024 * 1024
"""Target size of a file, between 128 and 256 MiB."""
EVENT_BYTES_MIN: Final = 8
"""Minimum estimate of the size of an event, which limits the events of a file."""
GRACE_MS: Final = 24 * 3_600_000
"""Time for which replaced files are kept, so that running queries can finish."""


@dataclass(slots=True, frozen=True)
class Compacted:
    """Result of a compaction.

    ``batches`` and ``events`` count what is new in the generation, ``files`` all of its files, and
    ``deleted`` the replaced files that were deleted.
    """

    generation: int
    batches: int
    events: int
    files: int
    deleted: int


def compact(
    spark: SparkSession,
    journal: Journal,
    *,
    file_bytes: int = FILE_BYTES,
    grace_ms: int = GRACE_MS,
) -> Compacted:
    """Publish a generation with all published batches, then delete files that were replaced.

    Args:
        spark: session with the time zone UTC.
        journal: the journal; the caller holds its lock for compactions.
        file_bytes: target size of a file.
        grace_ms: time for which replaced files are kept, in ms.

    Raises:
        JournalRefused: the written files do not have exactly the events of the batches.
    """
    before = journal.generation()
    new = list(journal.manifests(before.last_batch + 1 if before else 0))
    if not new:
        number = before.number if before else 0
        files = len(before.files) if before else 0
        return Compacted(number, 0, 0, files, delete_replaced(journal, grace_ms))
    number = before.number + 1 if before else 1
    dates = {_date(file.path) for one in new for file in one.files}
    old = before.files if before else ()
    rewritten = [file for file in old if file.date in dates]
    rows = read_files(
        spark,
        journal,
        [file.path for file in rewritten],
        [file.path for one in new for file in one.files],
    )
    folder = journal.root / "events" / f"gen={number:012d}"
    if rows is not None:
        with described(spark, f"taskraft compact: generation {number} of {journal.root}"):
            _write(rows, folder, _events_per_file(rewritten, new, file_bytes))
    written = describe_files(folder, journal.root)
    _check(journal, rewritten, new, written)
    kept = [file for file in old if file.date not in dates]
    generation = Generation(
        journal=journal.id(),
        number=number,
        last_batch=new[-1].batch,
        chain=new[-1].chain,
        published_ms=time.time_ns() // 1_000_000,
        files=tuple(sorted((*kept, *written), key=lambda file: file.path)),
        erased=before.erased if before else (),
    )
    publish(journal.generation_path(number), generation.to_json())
    deleted = delete_replaced(journal, grace_ms)
    events = sum(one.events for one in new)
    return Compacted(number, len(new), events, len(generation.files), deleted)


def _date(path: str) -> str:
    return next(part for part in path.split("/") if part.startswith("date=")).removeprefix("date=")


def _events_per_file(
    rewritten: Sequence[EventsFile], new: Sequence[Manifest], file_bytes: int
) -> int:
    """Return how many events make a file of the target size, from the sizes of the sources."""
    sizes = [(file.events, file.bytes) for file in rewritten]
    sizes += [(file.events, file.bytes) for one in new for file in one.files]
    events = sum(count for count, _ in sizes)
    size = sum(count for _, count in sizes)
    return max(1, int(file_bytes / max(size / max(events, 1), EVENT_BYTES_MIN)))


def _write(rows: DataFrame, folder: Path, events_per_file: int) -> None:
    """Write events by date and tube; overwrites the files of an earlier attempt."""
    (
        rows.repartition("date", "tube")
        .sortWithinPartitions("date", "tube", "task_id", "seq")
        .write.mode("overwrite")
        .partitionBy("date", "tube")
        .option("maxRecordsPerFile", events_per_file)
        .option("compression", "zstd")
        .parquet(spark_path(folder))
    )


def describe_files(folder: Path, root: Path) -> list[EventsFile]:
    """Return the Parquet files of a folder, after an fsync of each."""
    found = []
    for path in sorted(folder.rglob("*.parquet")):
        found.append(describe_file(path, root))
        sync(path)
    for inner in (folder, *folder.glob("date=*"), *folder.glob("date=*/tube=*")):
        if inner.is_dir():
            sync_folder(inner)
    return found


def describe_file(path: Path, root: Path) -> EventsFile:
    """Return the description of a Parquet file."""
    data = path.read_bytes()
    times = read_columns(data, ["ts"])["ts"]
    span = pc.min_max(times.cast(pa.int64())).as_py()
    return EventsFile(
        path=path.relative_to(root).as_posix(),
        events=len(times),
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        first_ms=span["min"] // 1_000,
        last_ms=span["max"] // 1_000,
    )


def _check(
    journal: Journal,
    rewritten: Sequence[EventsFile],
    new: Sequence[Manifest],
    written: Sequence[EventsFile],
) -> None:
    """Check that the written files have exactly the events of the sources."""
    expected, found = SequenceDigest(), SequenceDigest()
    for file in rewritten:
        expected.add_file(journal.root / file.path)
    expected.add_batches(new)
    for file in written:
        found.add_file(journal.root / file.path)
    differing = found.differing(expected)
    if differing:
        raise JournalRefused(
            f"{journal.root}: the compacted files do not have the events of partitions {differing};"
            " nothing was published"
        )


def delete_replaced(journal: Journal, grace_ms: int) -> int:
    """Delete the files that no reader can use any more; return their number.

    A reader uses the files of the generation that was in force when it started. Generations within
    the grace time, the newest one, and the batches after the oldest of these are kept.
    """
    generations = list(journal.generations())
    if not generations:
        return 0
    since_ms = time.time_ns() // 1_000_000 - grace_ms
    superseded = [
        one.number
        for one, later in itertools.pairwise(generations)
        if later.published_ms <= since_ms
    ]
    used = [one for one in generations if one.number not in superseded]
    names = {file.path for one in used for file in one.files}
    deleted = 0
    for number, folder in numbered_folders(journal.root / "events", "gen="):
        for path in sorted(folder.rglob("*.parquet")):
            if number <= used[-1].number and path.relative_to(journal.root).as_posix() not in names:
                path.unlink()
                deleted += 1
    # Readers that started before the oldest used generation read the batches that it replaced.
    if used[0].published_ms <= since_ms:
        deleted += delete_batches(journal, used[0].last_batch)
    for one in generations:
        if one.number in superseded:
            journal.generation_path(one.number).unlink()
    return deleted


def delete_batches(journal: Journal, last_batch: int) -> int:
    """Delete the files of all batches up to ``last_batch``; return the number of files.

    The manifests of the batches stay.
    """
    deleted = 0
    for batch, path in numbered_folders(journal.root / "raw", "batch="):
        if batch <= last_batch:
            deleted += len(list(path.rglob("*.parquet")))
            shutil.rmtree(path)
    return deleted
