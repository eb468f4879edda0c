"""Export the feed into a journal with a streaming query that can be killed at any time."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import JournalRefused, OptionInvalid
from taskraft_pipeline.feed import describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.journal.batch_writer import BatchWriter
from taskraft_pipeline.journal.journal import spark_path
from taskraft_pipeline.offset_planning import resolve_position, skip_trimmed
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.options import Bound, Options, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from taskraft_pipeline.journal.batch_writer import PublishedBatch
    from taskraft_pipeline.journal.journal import Journal

log = logging.getLogger(__name__)

QUERY_NAME: Final = "taskraft-journal"
REFUSED_OPTIONS: Final = ("read", "tubes", "kinds", "columns", "endingOffsets")
"""Options that would leave events or columns out, so that a journal could not prove anything."""


def export_options(given: Mapping[str, str]) -> Options:
    """Return the options of an export.

    Raises:
        OptionInvalid: an option is invalid, or would leave events or columns out of the journal.
    """
    names = {name.lower() for name in given}
    refused = [name for name in REFUSED_OPTIONS if name.lower() in names]
    if refused:
        raise OptionInvalid(
            f"{', '.join(refused)} cannot be combined with an export; a journal has all events"
            " with all columns, and `load` selects among them"
        )
    return parse(given)


def prepare(journal: Journal, options: Options) -> int:
    """Create a journal that starts at the oldest kept event, or check an existing journal.

    If the checkpoint of a journal is lost, a new checkpoint begins after the last published batch.

    Returns:
        Number of events that the feed has after the journal.

    Raises:
        FeedMismatch: the nodes serve another feed.
        CursorTrimmed: retention has removed events that are not in the journal, and loss is a
            failure; nothing was changed.
    """
    with FeedClient(options.endpoints, options) as client:
        feed = describe(client, is_linearizable=True)
    last = journal.last_manifest()
    if last is not None:
        position = Offset(journal.start().feed_id, last.next_seq)
    elif journal.exists():
        position = journal.start()
    else:
        position = resolve_position(options.starting or Bound.EARLIEST, feed)
    begin = skip_trimmed(position, feed, is_loss_failure=options.is_loss_failure)
    if not journal.exists():
        journal.create(position)
    if not journal.has_checkpoint():
        if last is not None:
            log.warning("the checkpoint is lost; continue after batch %s", last.batch)
        journal.start_checkpoint(last.batch + 1 if last else 0)
    return sum(begin.lags(feed.high).values())


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
        options: options of the data source. ``failOnDataLoss=false`` records events that retention
            removed before they were read, instead of ending the export. ``consumer`` is
            ``journal-<id>`` by default; ``consumerTtl=0s`` delays no retention.
        interval_ms: pause between batches of an endless query, in ms. None: stop at the current end
            of the feed.
        on_published: called after each published batch.

    Raises:
        JournalRefused: the session has another time zone.
    """
    if spark.conf.get("spark.sql.session.timeZone") != "UTC":
        raise JournalRefused("a journal needs dates in UTC: set spark.sql.session.timeZone to UTC")
    begin = journal.start()
    before = journal.manifest_before(journal.first_batch())
    if before is not None:
        begin = Offset(begin.feed_id, before.next_seq)
    # The export itself commits the cursor, after the batch is published.
    given = {key: text for key, text in options.items() if key.lower() != "consumer"}
    given["startingOffsets"] = json.dumps(begin.to_json())
    changes = spark.readStream.format("taskraft").options(**given).load()
    batches = BatchWriter(journal, parse(options), on_published)
    stream = (
        changes.writeStream.queryName(QUERY_NAME)
        .option("checkpointLocation", spark_path(journal.checkpoint))
        .foreachBatch(batches.write)
    )
    if interval_ms is None:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{interval_ms} milliseconds").start()
