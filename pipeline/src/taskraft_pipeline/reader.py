"""The readers of the data source, for batch queries and streaming queries.

The ``read`` methods run in the executors, all others on the driver. Two features are left out. The
method "pushFilters" is missing, because up to Spark 4.3 a pushed filter also applies to later
queries on the same DataFrame, which then silently return too little; the options ``tubes`` and
``kinds`` filter on the server instead. The method "commit" does nothing, because Spark never calls
it for the last batch, whereas the ``start`` of ``latestOffset`` is always durable.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from taskraft_pipeline.feed import FeedNodes, RangeReader, describe
from taskraft_pipeline.feed_client import FeedClient
from taskraft_pipeline.feed_stream import FeedStream
from taskraft_pipeline.offset_planning import resolve_position, skip_trimmed
from taskraft_pipeline.offsets import Offset, Range, ranges, split_into_tasks
from taskraft_pipeline.options import Bound, Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


@dataclass(slots=True, frozen=True)
class ChangesPartition(InputPartition):
    """The work of one Spark task.

    Attributes:
        feed_id: id of the feed.
        ranges: ranges to read.
        endpoints: nodes to read from, in the order in which the task tries them.
    """

    feed_id: str
    ranges: tuple[Range, ...]
    endpoints: tuple[str, ...]


def plan(
    options: Options, feed_id: str, whole: Sequence[Range], nodes: FeedNodes
) -> list[InputPartition]:
    """Divide ranges among Spark tasks, and the tasks among the nodes."""
    return [
        ChangesPartition(feed_id, pieces, nodes.for_task(number))
        for number, pieces in enumerate(split_into_tasks(whole, options.events_per_task))
    ]


BATCH_ROWS_MIN: Final = 20_000
"""Minimum number of rows of a record batch, except for the last batch of a Spark task.

Spark spends a fixed time on each batch, and a node with few tasks per second sends small chunks.
"""


def read_partition(options: Options, work: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the events of one Spark task, in batches of at least ``BATCH_ROWS_MIN`` rows."""
    if not isinstance(work, ChangesPartition):
        return  # Spark's placeholder for a query without partitions
    # Import Arrow only in executors; the processes that plan a query do not need it.
    import pyarrow as pa  # noqa: PLC0415 - in executors only

    from taskraft_pipeline.codec import record_batch  # noqa: PLC0415 - in executors only

    with FeedClient(work.endpoints, options) as client:
        reader = RangeReader(
            client,
            work.feed_id,
            tubes=options.tubes,
            kinds=options.kinds,
            columns=options.columns,
            is_loss_failure=options.is_loss_failure,
        )
        batches: list[pa.RecordBatch] = []
        rows = 0
        for chunk in itertools.chain.from_iterable(map(reader.read, work.ranges)):
            if not chunk.rows:
                continue
            batches.append(record_batch(chunk, options.columns))
            rows += chunk.rows
            if rows >= BATCH_ROWS_MIN:
                yield pa.concat_batches(batches)
                batches, rows = [], 0
        if batches:
            yield pa.concat_batches(batches)


class ChangesReader(DataSourceReader):
    """Reads a range of the feed once."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Determine the range, and divide it among Spark tasks."""
        options = self._options
        with FeedClient(options.endpoints, options) as client:
            feed = describe(client, is_linearizable=True)
        start = resolve_position(options.starting or Bound.EARLIEST, feed)
        end = resolve_position(options.ending, feed)
        whole = ranges(start.next_seq, end.next_seq)
        skip_trimmed(start, feed, is_loss_failure=options.is_loss_failure)
        return plan(options, feed.feed_id, whole, feed.nodes(options.endpoints))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the work of one Spark task; runs in an executor."""
        return read_partition(self._options, partition)


class ChangesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the feed batch by batch.

    Spark keeps one instance on the driver for the lifetime of the query, and sends an unused
    instance to the executors.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._opened: FeedStream | None = None

    def _stream(self) -> FeedStream:
        if self._opened is None:
            client = FeedClient(self._options.endpoints, self._options)
            self._opened = FeedStream(self._options, client, time.monotonic)
        return self._opened

    def initialOffset(self) -> dict[str, object]:
        """Return the offset at which a new query begins."""
        return self._stream().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes back to ``latestOffset``."""
        return ReadMaxRows(self._options.events_per_trigger_max)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Return the offset at which the next batch ends."""
        events_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert events_max is not None or isinstance(limit, ReadAllAvailable), limit
        return self._stream().latest(Offset.from_json(start), events_max).to_json()

    def reportLatestOffset(self) -> dict[str, object]:
        """Return the end of the feed, so that progress reports show the lag."""
        return self._stream().newest().to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query to the current end of the feed."""
        self._stream().fix_target()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Divide a batch among Spark tasks, without a call to a node."""
        begin, finish = Offset.from_json(start), Offset.from_json(end)
        whole = ranges(begin.next_seq, finish.next_seq)
        return plan(self._options, finish.feed_id, whole, self._stream().nodes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the work of one Spark task; runs in an executor."""
        return read_partition(self._options, partition)
