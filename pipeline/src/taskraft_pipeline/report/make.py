"""Make a report from a running cluster's feed or from a journal, and write its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.loading import load
from taskraft_pipeline.report.changes import changes, last_report
from taskraft_pipeline.report.compute import COLUMNS, compute
from taskraft_pipeline.report.page import page
from taskraft_pipeline.report.tables import as_json, as_text, csv_files
from taskraft_pipeline.spark_session import cached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from taskraft_pipeline.report.report import Report


def report_from_feed(spark: SparkSession, endpoints: str, tubes: Sequence[str] = ()) -> Report:
    """Return the report over all events that the feed of a cluster keeps.

    Raises:
        NothingToReport: the feed has no events.
    """
    changes = (
        spark.read.format("taskraft")
        .option("endpoints", endpoints)
        .option("columns", ",".join(COLUMNS))
        .option("tubes", ",".join(tubes))
        .load()
    )
    # Read once for five queries; Spark spills to disk if memory is short.
    with cached(changes):
        return compute(changes, "change feed", is_filtered=bool(tubes))


def report_from_journal(spark: SparkSession, folder: str, tubes: Sequence[str] = ()) -> Report:
    """Return the report over a journal.

    Raises:
        JournalRefused: there is no journal, or no batch is published.
        NothingToReport: the journal has no events of these tubes.
    """
    changes = load(spark, Journal.at(folder)).select(*COLUMNS)
    if tubes:
        changes = changes.where(changes.tube.isin(*tubes))
    return compute(changes, f"journal {folder}", is_filtered=bool(tubes))


@dataclass(slots=True, frozen=True)
class WrittenReport:
    """The HTML file of a report, and the report as text."""

    page: Path
    text: str


def write_report(report: Report, folder: Path) -> WrittenReport:
    """Write report.html, .txt, .json and CSV tables; replace the last report of the folder.

    The page and the text begin with what has changed since the last report of the same source.
    """
    folder.mkdir(parents=True, exist_ok=True)
    changed = changes(report, last_report(folder / "report.json"))
    text, html = as_text(report, changed), page(report, changed)
    for name, content in csv_files(report).items():
        (folder / name).write_text(content)
    (folder / "report.txt").write_text(text)
    (folder / "report.json").write_text(as_json(report))
    result = folder / "report.html"
    result.write_text(html)
    return WrittenReport(result, text)
