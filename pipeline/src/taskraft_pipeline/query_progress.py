"""Report how fast a streaming query reads the change feed, and how far behind the query is.

Spark has no metrics of a source that is written in Python. The numbers of this module come from
Spark's progress reports instead: the lag from the offsets, the rate from the rows, and the bytes
from a figure that `observed` adds to the rows.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.listener import StreamingQueryListener

from taskraft_pipeline.errors import OffsetInvalid
from taskraft_pipeline.offsets import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
        StreamingQueryProgress,
    )

OBSERVED: Final = "taskraft"
"""Name of the figures of `observed` in ``observedMetrics`` of a progress report."""
LINE_SECONDS: Final = 30.0
"""Default time between two lines about one query, in seconds."""
REPORTS_MAX: Final = 1_000
"""Maximum number of progress reports that a listener keeps; the oldest ones are dropped."""
FIXED_BYTES: Final[Mapping[str, int]] = {
    "boolean": 1,
    "int": 4,
    "bigint": 8,
    "timestamp": 8,
}
"""Size of a value by its type; the size of a text or of bytes is their length."""


@dataclass(slots=True, frozen=True)
class FeedProgress:
    """Progress of a query after one batch from one change feed.

    Attributes:
        query: name of the query, else its id.
        batch: number of the batch.
        events: number of rows that Spark read from this source.
        events_per_second: these rows by the duration of the batch.
        bytes_per_second: size of the values by the duration of the batch; None without `observed`.
        lags: number of events after the batch, by partition of the feed; None if Spark does not
            report the end of the feed. With the options ``tubes`` and ``kinds``, other events count
            too.
    """

    query: str
    batch: int
    events: int
    events_per_second: float
    bytes_per_second: float | None
    lags: Mapping[int, int] | None

    def __str__(self) -> str:
        """Return one line for people."""
        size = ""
        if self.bytes_per_second is not None:
            size = f", {self.bytes_per_second / 1_000_000:,.1f} MB/s"
        return (
            f"{self.query}: batch {self.batch:,}, {self.events_per_second:,.0f} events/s{size},"
            f" {lag_text(self.lags)}"
        )


def lag_text(lags: Mapping[int, int] | None) -> str:
    """Return the lag over all partitions, and the partition with the largest lag."""
    if lags is None:
        return "lag unknown"
    whole = sum(lags.values())
    if not whole:
        return "at the end of the feed"
    partition = max(lags, key=lambda one: (lags[one], -one))
    return f"{whole:,} events behind (partition {partition}: {lags[partition]:,})"


def feed_progress(progress: StreamingQueryProgress) -> list[FeedProgress]:
    """Return the progress of each source of a query that reads a change feed."""
    found = []
    for source in progress.sources:
        end = offset_of(source.endOffset)
        if end is not None:
            found.append(_of_source(progress, source, end))
    return found


def _of_source(
    progress: StreamingQueryProgress, source: SourceProgress, end: Offset
) -> FeedProgress:
    high = offset_of(source.latestOffset)
    row = progress.observedMetrics.get(OBSERVED)
    per_second = 1_000 / max(progress.batchDuration, 1)
    return FeedProgress(
        query=progress.name or str(progress.id),
        batch=progress.batchId,
        events=source.numInputRows,
        events_per_second=source.numInputRows * per_second,
        bytes_per_second=None if row is None else (row["bytes"] or 0) * per_second,
        lags=None if high is None else end.lags(high.next_seq),
    )


def offset_of(stored: object) -> Offset | None:
    """Return the offset of a progress report; None if it is not an offset of a change feed.

    Spark gives the offset as a string or as an object, and offsets of other sources beside it.
    """
    try:
        return Offset.from_json(stored)
    except OffsetInvalid:
        return None


def observed(rows: DataFrame) -> DataFrame:
    """Return the rows of a source with a figure of their bytes in the progress reports.

    The figure is the size of the values, without the overhead of Arrow and Spark. A query can have
    one such figure.
    """
    sizes = [size_of(rows, name, kind) for name, kind in rows.dtypes]
    total = sum(sizes[1:], sizes[0])
    return rows.observe(OBSERVED, F.sum(total).alias("bytes"))


def size_of(rows: DataFrame, name: str, kind: str) -> Column:
    """Return the size of the values of a column, in bytes; 0 for null."""
    value = rows[name]
    size = F.lit(FIXED_BYTES[kind]) if kind in FIXED_BYTES else F.octet_length(value)
    return F.when(value.isNull(), 0).otherwise(size).cast("bigint")


class FeedListener(StreamingQueryListener):
    """Keeps the progress of all queries that read a change feed, and tells it at intervals.

    Add it with ``spark.streams.addListener``. Spark calls it in a thread of its own, after each
    batch that has rows.

    Args:
        tell: gets one line of text.
        line_seconds: minimum time between two lines about one query, in seconds. The first line
            comes after this time.
        clock: reads a clock in seconds that never goes back.
    """

    def __init__(
        self,
        tell: Callable[[str], object],
        line_seconds: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._line_seconds = line_seconds
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self._created_at = clock()
        self.reports: deque[FeedProgress] = deque(maxlen=REPORTS_MAX)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing; a query that has read nothing has no progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep the progress of a batch; tell a line if the last line is old enough."""
        for found in feed_progress(event.progress):
            self.reports.append(found)
            now = self._clock()
            if now - self._told_at.get(found.query, self._created_at) >= self._line_seconds:
                self._told_at[found.query] = now
                self._tell(str(found))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing; a query without new events is at the end of the feed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing; the reports of a query that has ended are kept."""


@contextlib.contextmanager
def told_progress(
    spark: SparkSession, tell: Callable[[str], object], line_seconds: float = LINE_SECONDS
) -> Iterator[FeedListener]:
    """Tell the progress of the queries of a session during the block; see `FeedListener`."""
    listener = FeedListener(tell, line_seconds)
    spark.streams.addListener(listener)
    try:
        yield listener
    finally:
        spark.streams.removeListener(listener)
