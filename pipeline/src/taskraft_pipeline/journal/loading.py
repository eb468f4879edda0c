"""Load the events of a journal as a DataFrame, from only the files that can have them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from taskraft_pipeline.errors import JournalRefused, OptionInvalid
from taskraft_pipeline.journal.journal import spark_path
from taskraft_pipeline.schema import COLUMNS, spark_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from taskraft_pipeline.journal.journal import Journal

SCHEMA = f"{spark_schema(tuple(COLUMNS))}, `date` DATE"


@dataclass(slots=True, frozen=True)
class Selection:
    """Which events are wanted.

    Attributes:
        since: time of the first event; None: from the beginning.
        until: time after the last event; None: to the end.
        tubes: names of tubes; empty: all tubes.
    """

    since: datetime | None = None
    until: datetime | None = None
    tubes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            found = getattr(self, name)
            if found is not None and found.tzinfo is None:
                raise OptionInvalid(f"{name} must have a time zone, for example UTC; got {found}")

    def covers(self, first_ms: int, last_ms: int) -> bool:
        """Return whether events in a span of time are wanted."""
        is_late_enough = self.since is None or _instant(last_ms) >= self.since
        return is_late_enough and (self.until is None or _instant(first_ms) < self.until)

    def has_tube(self, tube: str) -> bool:
        """Return whether events of a tube are wanted."""
        return not self.tubes or tube in self.tubes


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


def selected_files(journal: Journal, wanted: Selection) -> tuple[list[str], list[str]]:
    """Return the paths of the compacted files and of the other files that can have wanted events.

    Raises:
        JournalRefused: there is no journal, or no batch is published.
    """
    journal.start()
    newest = journal.generation()
    compacted = [
        file.path
        for file in (newest.files if newest else ())
        if wanted.has_tube(file.tube) and wanted.covers(file.first_ms, file.last_ms)
    ]
    after = newest.last_batch + 1 if newest else 0
    later = list(journal.manifests(after))
    if newest is None and not later:
        raise JournalRefused(f"{journal.root}: no batch is published yet")
    return compacted, [
        file.path for one in later if wanted.covers(one.first_ms, one.last_ms) for file in one.files
    ]


def read_files(
    spark: SparkSession, journal: Journal, compacted: Sequence[str], raw: Sequence[str]
) -> DataFrame | None:
    """Return the events of compacted files and of files of batches; None if there are no files."""
    found: DataFrame | None = None
    for folder, paths in (("events", compacted), ("raw", raw)):
        if not paths:
            continue
        rows = (
            spark.read.schema(SCHEMA)
            .option("basePath", spark_path(journal.root / folder))
            .parquet(*(spark_path(journal.root / path) for path in paths))
            .select(*COLUMNS, "date")
        )
        found = rows if found is None else found.union(rows)
    return found


def load(
    spark: SparkSession,
    journal: Journal,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    tubes: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> DataFrame:
    """Return published events of a journal.

    Args:
        spark: session with the time zone UTC.
        journal: the journal.
        since: time of the first event; None: from the beginning.
        until: time after the last event; None: to the end.
        tubes: only events of these tubes; empty: all tubes.
        columns: columns of the rows; empty: all columns of the feed, and ``date``.

    Raises:
        JournalRefused: there is no journal, or no batch is published.
        OptionInvalid: a time has no time zone.
    """
    wanted = Selection(since, until, tuple(tubes))
    compacted, raw = selected_files(journal, wanted)
    rows = read_files(spark, journal, compacted, raw)
    if rows is None:
        rows = spark.createDataFrame([], SCHEMA)
    if since is not None:
        rows = rows.where(F.col("ts") >= F.lit(since))
    if until is not None:
        rows = rows.where(F.col("ts") < F.lit(until))
    if tubes:
        rows = rows.where(F.col("tube").isin(*tubes))
    return rows.select(*columns) if columns else rows
