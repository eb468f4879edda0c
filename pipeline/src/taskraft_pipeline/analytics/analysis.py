"""Keep the tables of a journal up to date: compute only the dates that have new events."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.analytics.tables import EVENT_COLUMNS, TABLES
from taskraft_pipeline.analytics.wait_targets import WaitTargets
from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.journal import read_json, spark_path
from taskraft_pipeline.journal.loading import Selection, load, selected_files
from taskraft_pipeline.spark_session import cached, described

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from taskraft_pipeline.journal.journal import Journal

FORMAT: Final = 3
"""Format of the tables; tables of another format are computed again."""
STATE: Final = "_analysis.json"
"""File with the journal of the tables, the targets of waits, and the number of events by date."""


@dataclass(slots=True, frozen=True)
class Analysed:
    """Result of an analysis: the computed dates in order, and the number of their events."""

    dates: tuple[str, ...]
    events: int


def analyse(
    spark: SparkSession, journal: Journal, folder: Path, targets: WaitTargets | None = None
) -> Analysed:
    """Compute the tables of the dates whose number of events has changed; replace their rows.

    A run that is killed leaves dates that the next run computes again. Other targets of waits than
    those of the tables cause all dates to be computed again.

    Args:
        spark: session with the time zone UTC.
        journal: the journal.
        folder: folder of the tables; created if it is missing. Only one run uses it at a time.
        targets: longest intended wait by tube; the defaults of `WaitTargets` if it is None.

    Raises:
        JournalRefused: there is no journal, no batch is published, or the tables belong to another
            journal.
    """
    folder = folder.absolute()
    targets = targets or WaitTargets()
    counts = events_by_date(journal)
    known = known_dates(folder, journal, targets)
    dates = sorted(date for date, events in counts.items() if known.get(date) != events)
    for date in dates:
        since = datetime.fromisoformat(date).replace(tzinfo=UTC)
        events = load(
            spark, journal, since=since, until=since + timedelta(days=1), columns=EVENT_COLUMNS
        )
        events = events.withColumn("wait_target_ms", targets.column())
        about = f"taskraft analyse: {date} of {journal.root}"
        with described(spark, about), cached(events):
            for name, compute in TABLES.items():
                place = spark_path(folder / name / f"date={date}")
                compute(events).drop("date").coalesce(1).write.mode("overwrite").parquet(place)
        known = {**known, date: counts[date]}
        _write_state(folder, journal, targets, known)
    return Analysed(tuple(dates), sum(counts[date] for date in dates))


def events_by_date(journal: Journal) -> Mapping[str, int]:
    """Return the number of events of each date, from the manifests alone."""
    generation = journal.generation()
    sizes = {file.path: file.events for file in (generation.files if generation else ())}
    after = generation.last_batch + 1 if generation else 0
    sizes |= {file.path: file.events for one in journal.manifests(after) for file in one.files}
    compacted, raw = selected_files(journal, Selection())
    found: Counter[str] = Counter()
    for path in (*compacted, *raw):
        (date,) = [part for part in path.split("/") if part.startswith("date=")]
        found[date.removeprefix("date=")] += sizes[path]
    return found


def known_dates(folder: Path, journal: Journal, targets: WaitTargets) -> Mapping[str, int]:
    """Return the number of events by date that the tables contain with these targets.

    Raises:
        JournalRefused: the tables belong to another journal.
    """
    path = folder / STATE
    if not path.exists():
        return {}
    stored = read_json(path)
    if stored.get("journal") != journal.id():
        raise JournalRefused(f"{folder}: the tables belong to another journal; choose a new folder")
    dates = stored.get("dates")
    is_current = stored.get("format") == FORMAT and stored.get("targets") == targets.to_json()
    if not is_current or not isinstance(dates, dict):
        return {}
    return {str(date): int(events) for date, events in dates.items()}


def _write_state(
    folder: Path, journal: Journal, targets: WaitTargets, dates: Mapping[str, int]
) -> None:
    content = {
        "format": FORMAT,
        "journal": journal.id(),
        "targets": targets.to_json(),
        "dates": dict(sorted(dates.items())),
    }
    draft = folder / f".{STATE}.{os.getpid()}"
    draft.write_text(json.dumps(content, indent=1))
    draft.replace(folder / STATE)
