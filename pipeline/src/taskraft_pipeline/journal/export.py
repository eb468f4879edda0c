"""Export the feed into a journal with a streaming query that can be killed at any time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.journal.batch_content import inspect
from taskraft_pipeline.journal.journal import publish, read_json, spark_path
from taskraft_pipeline.journal.manifest import Manifest, manifest_problems
from taskraft_pipeline.offset_planning import resolve_position
from taskraft_pipeline.options import Bound, Options
from taskraft_pipeline.schema import COLUMNS, spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from taskraft_pipeline.journal.journal import Journal

QUERY_NAME: Final = "taskraft-journal"
ORDER: Final = ("date", "tube", "task_id", "seq")
"""Order of the rows in a file: similar rows are neighbours, which halves the size."""


@dataclass(slots=True, frozen=True)
class PublishedBatch:
    """Progress report: a batch was published."""

    batch: int
    events: int
    next_seq: Mapping[int, int]


def prepare(journal: Journal, options: Options) -> None:
    """Create a journal that starts at the oldest kept event, or check an existing journal.

    Raises:
        FeedMismatch: the nodes serve another feed.
        JournalRefused: the journal has batches, but its checkpoint is missing.
    """
    with FeedClient(options.endpoints, options) as client:
        feed = describe(client, is_linearizable=True)
    if not journal.exists():
        journal.create(resolve_position(options.starting or Bound.EARLIEST, feed))
        return
    feed.check(journal.start().feed_id)
    if journal.manifest(0) is not None and not (journal.checkpoint / "metadata").exists():
        raise JournalRefused(
            f"{journal.root}: the checkpoint is missing; without it an export would repeat the"
            " journal. Restore it, or export into a new folder"
        )


def start(
    spark: SparkSession,
    journal: Journal,
    options: Mapping[str, str],
    *,
    interval_ms: int | None = None,
    on_published: Callable[[PublishedBatch], None] = lambda _: None,
) -> StreamingQuery:
    """Start the export; the caller holds the journal's lock and has called `prepare`.

    Args:
        spark: session with the time zone UTC.
        journal: journal to write.
        options: options of the data source: endpoints and limits.
        interval_ms: pause between batches of an endless query, in ms. None: stop at the current end
            of the feed.
        on_published: called after each published batch.

    Raises:
        JournalRefused: the session has another time zone.
    """
    if spark.conf.get("spark.sql.session.timeZone") != "UTC":
        raise JournalRefused("a journal needs dates in UTC: set spark.sql.session.timeZone to UTC")
    begin = json.dumps(journal.start().to_json())
    changes = spark.readStream.format("taskraft").options(**options, startingOffsets=begin).load()
    batches = BatchWriter(journal, on_published)
    stream = (
        changes.writeStream.queryName(QUERY_NAME)
        .option("checkpointLocation", spark_path(journal.checkpoint))
        .foreachBatch(batches.write)
    )
    if interval_ms is None:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{interval_ms} milliseconds").start()


class BatchWriter:
    """Writes the batches of a streaming query; runs on the driver."""

    def __init__(self, journal: Journal, on_published: Callable[[PublishedBatch], None]) -> None:
        self._journal = journal
        self._on_published = on_published

    def write(self, changes: DataFrame, batch: int) -> None:
        """Write one batch and publish it, unless it was already published before a crash.

        Raises:
            JournalRefused: the batch does not follow the previous batch, or the files do not hold
                exactly the planned range.
        """
        journal = self._journal
        query = str(read_json(journal.checkpoint / "metadata")["id"])
        published = journal.manifest(batch)
        if published is not None:
            if published.query != query:
                raise JournalRefused(f"{journal.root}: batch {batch} was written by another query")
            return
        begin = journal.position_before(batch)
        write_files(changes, spark_path(journal.batch_folder(batch)))
        content = inspect(journal.batch_folder(batch), journal.root, is_synced=True)
        manifest = Manifest(
            batch=batch,
            query=query,
            held=content.held,
            next_seq=journal.planned(batch).next_seq,
            first_ms=content.first_ms,
            last_ms=content.last_ms,
            files=content.files,
        )
        wrong = manifest_problems(manifest, begin)
        if wrong:
            raise JournalRefused("; ".join(wrong))
        publish(journal.manifest_path(batch), manifest.to_json())
        self._on_published(PublishedBatch(batch, manifest.events, manifest.next_seq))


def write_files(changes: DataFrame, place: str) -> None:
    """Write a batch as Parquet by date; overwrites the files of an earlier attempt."""
    (
        changes.selectExpr("*", "to_date(ts) AS date")
        .sortWithinPartitions(*ORDER)
        .write.mode("overwrite")
        .partitionBy("date")
        .option("compression", "zstd")
        .parquet(place)
    )


def load(spark: SparkSession, journal: Journal) -> DataFrame:
    """Return the published events of a journal, with the additional column ``date``.

    Raises:
        JournalRefused: there is no journal, or no batch is published.
    """
    journal.start()
    files = [journal.root / file.path for one in journal.manifests() for file in one.files]
    if not files:
        raise JournalRefused(f"{journal.root}: no batch is published yet")
    return (
        spark.read.schema(f"{spark_schema(tuple(COLUMNS))}, `date` DATE")
        .option("basePath", spark_path(journal.root / "raw"))
        .parquet(*(spark_path(path) for path in files))
    )
