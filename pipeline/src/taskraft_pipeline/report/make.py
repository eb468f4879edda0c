"""Make a report from a running cluster's feed or from a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_pipeline.journal.export import load
from taskraft_pipeline.journal.folder import Journal
from taskraft_pipeline.report.compute import COLUMNS, compute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from taskraft_pipeline.report.figures import Report


def from_feed(spark: SparkSession, endpoints: str, tubes: Sequence[str] = ()) -> Report:
    """Return the report over all that a cluster's feed has kept.

    Raises:
        NothingToReport: that is nothing.
    """
    changes = (
        spark.read.format("taskraft")
        .option("endpoints", endpoints)
        .option("columns", ",".join(COLUMNS))
        .option("tubes", ",".join(tubes))
        .load()
        # Read once, for five questions; what does not fit into memory goes to disk.
        .persist()
    )
    try:
        return compute(changes, "change feed", is_filtered=bool(tubes))
    finally:
        changes.unpersist()


def from_journal(spark: SparkSession, folder: str, tubes: Sequence[str] = ()) -> Report:
    """Return the report over a journal.

    Raises:
        JournalRefused: there is none, or nothing was published yet.
        NothingToReport: it has nothing of these tubes.
    """
    changes = load(spark, Journal.at(folder)).select(*COLUMNS)
    if tubes:
        changes = changes.where(changes.tube.isin(*tubes))
    return compute(changes, f"journal {folder}", is_filtered=bool(tubes))
