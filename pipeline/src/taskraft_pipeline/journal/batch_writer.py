"""Write the batches of the export, and publish each batch with its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.journal.batch_content import inspect
from taskraft_pipeline.journal.journal import publish, read_json, spark_path
from taskraft_pipeline.journal.manifest import LostRange, Manifest, manifest_problems
from taskraft_pipeline.journal.retention_hold import RetentionHold
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.spark_session import described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from taskraft_pipeline.feed import Feed
    from taskraft_pipeline.journal.batch_content import BatchContent
    from taskraft_pipeline.journal.journal import Journal
    from taskraft_pipeline.journal.manifest import HeldRange
    from taskraft_pipeline.options import Options

ORDER: Final = ("date", "tube", "task_id", "seq")
"""Order of the rows in a file: similar rows are neighbours, which halves the size."""


@dataclass(slots=True, frozen=True)
class PublishedBatch:
    """Progress report: a batch was published.

    ``lost`` is the number of events that retention removed before the export, ``lag`` the number
    of events that the feed has after the batch.
    """

    batch: int
    events: int
    lost: int
    lag: int


class BatchWriter:
    """Writes the batches of a streaming query; runs on the driver."""

    def __init__(
        self,
        journal: Journal,
        options: Options,
        on_published: Callable[[PublishedBatch], None],
    ) -> None:
        self._journal = journal
        self._options = options
        self._on_published = on_published
        self._hold = RetentionHold(options, options.consumer or f"journal-{journal.id()[:8]}")
        self._first_batch = journal.first_batch()

    def write(self, changes: DataFrame, spark_batch: int) -> None:
        """Write one batch and publish it, unless it was already published before a crash.

        Raises:
            JournalRefused: the batch does not follow the previous batch, or the files do not have
                exactly the planned range.
        """
        journal = self._journal
        batch = self._first_batch + spark_batch
        query = str(read_json(journal.checkpoint / "metadata")["id"])
        published = journal.manifest(batch)
        if published is not None:
            if published.query != query:
                raise JournalRefused(f"{journal.root}: batch {batch} was written by another query")
            return
        before = journal.manifest_before(batch)
        begin = before.next_seq if before else journal.start().next_seq
        planned = journal.planned(batch)
        events = sum(Offset(planned.feed_id, begin).lags(planned.next_seq).values())
        about = f"taskraft export: batch {batch}, {events:,} events of the feed"
        with described(changes.sparkSession, about):
            write_files(changes, spark_path(journal.batch_folder(batch)))
        content = inspect(journal.batch_folder(batch), journal.root, is_synced=True)
        manifest = Manifest(
            journal=journal.id(),
            batch=batch,
            query=query,
            held=content.held,
            next_seq=planned.next_seq,
            first_ms=content.first_ms,
            last_ms=content.last_ms,
            files=content.files,
            lost=self._lost(begin, content, planned),
        ).chained(before.chain if before else "")
        wrong = manifest_problems(manifest, begin)
        if wrong:
            raise JournalRefused("; ".join(wrong))
        publish(journal.manifest_path(batch), manifest.to_json())
        self._hold.commit(planned)
        lag = sum(planned.lags(self._described().high).values())
        self._on_published(PublishedBatch(batch, manifest.events, manifest.events_lost, lag))

    def _lost(
        self, begin: Mapping[int, int], content: BatchContent, planned: Offset
    ) -> Mapping[int, LostRange]:
        """Return the events that retention removed before this batch was read.

        Raises:
            JournalRefused: missing events that the nodes still have.
        """
        missing = missing_ranges(begin, content.held, planned.next_seq)
        if not missing or self._options.is_loss_failure:
            return {}
        low = self._described().low
        kept = [one for one, lost in missing.items() if low.get(one, 0) <= lost.last_seq]
        if kept:
            raise JournalRefused(
                f"{self._journal.root}: events of partitions {kept} were not read, although the"
                " nodes have them; run the export again"
            )
        return missing

    def _described(self) -> Feed:
        with FeedClient(self._options.endpoints, self._options) as client:
            return describe(client, is_linearizable=False)


def missing_ranges(
    begin: Mapping[int, int], held: Mapping[int, HeldRange], end: Mapping[int, int]
) -> Mapping[int, LostRange]:
    """Return the events between the previous batch and the first event of this batch."""
    found = {}
    for partition, next_seq in end.items():
        first = begin.get(partition, 0)
        reached = held[partition].first_seq if partition in held else next_seq
        if reached > first:
            found[partition] = LostRange(first, reached - 1)
    return found


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
