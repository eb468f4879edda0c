"""Run the Spark pipeline over a simulated day: journal, tables, report (`make pipeline`)."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.day_events import day_events
from demo.simulated_day import EVENTS_PER_TASK, PLANS, simulate
from demo.simulated_feed import SimulatedFeed
from taskraft_pipeline import java
from taskraft_pipeline.analytics.analysis import analyse
from taskraft_pipeline.analytics.views import register_views
from taskraft_pipeline.journal import export
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.options import parse
from taskraft_pipeline.report.make import report_from_journal, write_report
from taskraft_pipeline.spark_session import spark_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from demo.day_events import DayEvents
    from taskraft_pipeline.journal.batch_writer import PublishedBatch

MASTER: Final = "local[2,3]"
MEMORY: Final = "2g"
"""Heap of Spark, enough for a day of ten million events on two cores."""
EVENTS_MIN: Final = 1_000
BRIEF_EVENTS: Final = 200_000
"""Below this number of events, the start of Spark takes longer than its work."""
BATCH_EVENTS: Final = 500_000
ROWS_MAX: Final = 20
FINDINGS: Final = (
    ("Incidents: waits beyond the target", """
        SELECT tube, since_ts, until_ts, tasks, wait_max_ms, cause FROM taskraft_incidents
        ORDER BY tasks DESC LIMIT 10
    """),
    ("Stuck tasks", "SELECT command, state, age_ms FROM taskraft_stuck_tasks ORDER BY age_ms DESC"),
    ("Workers unlike the others", """
        SELECT tube, session, problem, attempts, round(failure_rate, 3) AS failure_rate
        FROM taskraft_worker_outliers
    """),
    ("Workers at the busiest hour", """
        SELECT tube, hour, round(offered, 2) AS offered, workers_seen, workers_needed
        FROM taskraft_capacity
        WHERE hour = timestamp '2026-06-01 15:00:00' ORDER BY offered DESC
    """),
    ("Largest sub-queue", """
        SELECT tube, max(top_share) AS top_share, min(jain_index) AS jain_index
        FROM taskraft_fairness GROUP BY tube
    """),
    ("Cost", """
        SELECT tube, round(worker_hours, 1) AS worker_hours, round(failed_hours, 2) AS failed_hours,
            round(share, 2) AS share FROM taskraft_costs ORDER BY share DESC
    """),
)  # fmt: skip
"""Title and SQL query of each printed answer."""


class Progress:
    """Prints each step with the time since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def show(self, text: str) -> None:
        """Print one line."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)


def simulated(events: int, seed: int, progress: Progress) -> DayEvents:
    """Return a simulated day of about ``events`` events."""
    days = []
    for plan in PLANS:
        day = simulate(plan, events, seed)
        days.append(day)
        progress.show(f"simulated {plan.tube}: {len(day.put_ms):,} tasks, {day.workers} workers")
    return day_events(days)


def export_day(spark: SparkSession, journal: Journal, day: DayEvents, progress: Progress) -> None:
    """Export a day into a journal, and verify the journal.

    Raises:
        SystemExit: the journal has problems.
    """
    done = 0

    def published(batch: PublishedBatch) -> None:
        nonlocal done
        done += batch.events
        progress.show(f"exported {done:,} events ({done / day.events:.0%})")

    with SimulatedFeed(day) as feed, journal.locked():
        options = {"endpoints": feed.address, "maxEventsPerTrigger": str(BATCH_EVENTS)}
        export.prepare(journal, parse(options))
        export.start(spark, journal, options, on_published=published).awaitTermination()
    verdict = verify(journal, is_deep=False)
    progress.show(f"verified {verdict.events:,} events: {verdict.conclusion}")
    if verdict.problems or verdict.events != day.events:
        raise SystemExit("\n".join(verdict.problems) or "events are missing")


def run(folder: Path, events: int, seed: int) -> Path:
    """Write journal, tables and report of a simulated day below a folder; return the report.

    Earlier output in the folder is replaced.
    """
    progress = Progress()
    day = simulated(events, seed, progress)
    parts = [folder / name for name in ("journal", "tables", "report")]
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)
    journal, tables, report = Journal.at(parts[0]), parts[1], parts[2]
    progress.show("starting Spark")
    settings = {"spark.driver.memory": MEMORY}
    is_brief = events < BRIEF_EVENTS
    with spark_session("taskraft pipeline", MASTER, is_brief=is_brief, settings=settings) as spark:
        export_day(spark, journal, day, progress)
        done = analyse(spark, journal, tables)
        progress.show(f"computed the tables of {', '.join(done.dates)}")
        register_views(spark, tables)
        for title, query in FINDINGS:
            print(f"\n{title}")
            spark.sql(query).limit(ROWS_MAX).show(ROWS_MAX, truncate=False)
        written = write_report(report_from_journal(spark, str(journal.root)), report).page
        progress.show(f"report: {written}")
    return written


def main(given: Sequence[str] | None = None) -> int:
    """Parse the arguments and run; return the exit status."""
    parser = argparse.ArgumentParser(prog="make pipeline", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("var/pipeline"), help="output folder")
    parser.add_argument("--events", type=int, default=1_000_000, help="events (1 000 000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the simulation (1)")
    parser.add_argument("--open", action="store_true", help="open the report in a browser")
    arguments = parser.parse_args(given)
    if arguments.events < EVENTS_MIN:
        parser.error(f"--events must be at least {EVENTS_MIN}, about {EVENTS_PER_TASK} for a task")
    if not java.is_sufficient():
        print(f"pipeline: {java.HINT}", file=sys.stderr)
        return 1
    written = run(arguments.folder, arguments.events, arguments.seed)
    if arguments.open and not webbrowser.open(written.absolute().as_uri()):
        print(f"no browser was found; open {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
