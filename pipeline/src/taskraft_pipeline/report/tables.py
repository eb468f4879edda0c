"""Lay out the numbers of a report: as text tables for people, as CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from taskraft_pipeline.figures import FIGURES
from taskraft_pipeline.report.report import ATTEMPTS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from taskraft_pipeline.report.report import Report, TubeStatistics

Cell: TypeAlias = str | int | float | None

NONE: Final = "-"
"""Content of a cell without a value."""
JSON_FORMAT: Final = 1
"""Format of report.json; a report of another format is not compared with a later one."""
USUAL_FIGURES: Final = frozenset(("put", "taken", "acknowledged", "failed", "buried", "expired"))
"""Figures that the table of tubes shows also if they are 0."""
OTHER_FAILURES: Final = "other failures"
"""First cell of the row that counts the failures without a row of their own."""
STATES: Final = ("ready", "delayed", "held", "taken", "buried", "done", "zombie")
"""States in the order of ``taskraft stats``."""


@dataclass(slots=True, frozen=True)
class Table:
    """A table for people.

    Attributes:
        title: title.
        heads: heads of the columns.
        rows: cells of each row.
        texts: heads of the columns with texts, which are left-aligned, beside the first column. The
            other columns have numbers, which are right-aligned.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Collection[str] = ()


def duration(milliseconds: float | None) -> str:
    """Return a duration as people say it: "1.25 s", "1 min 40 s", "2 h 05 min" or "3 d 01 h"."""
    if milliseconds is None:
        return NONE
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1_000:.3g} s"
    minutes, seconds = divmod(round(milliseconds / 1_000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(milliseconds / 60_000), 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"
    days, hours = divmod(round(milliseconds / 3_600_000), 24)
    return f"{days} d {hours:02} h" if hours else f"{days} d"


def count(number: int) -> str:
    """Return a number with thousands separators; "-" for 0."""
    return f"{number:,}" if number else NONE


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which has an "s" unless the number is 1."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def ratio(number: float | None) -> str:
    """Return a rate or ratio with three digits."""
    if number is None:
        return NONE
    return count(round(number)) if number >= 1_000 else f"{number:.3g}"


def instant(at_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def tables(report: Report) -> list[Table]:
    """Return the tables of a report."""
    return [flow(report), states(report), times(report), failures(report), attempts(report)]


def lines_of(report: Report) -> list[TubeStatistics]:
    """Return the tubes, and their total if there are several."""
    return [*report.tubes, report.total] if len(report.tubes) > 1 else list(report.tubes)


def flow(report: Report) -> Table:
    """Return the table of counts per tube."""
    columns: tuple[tuple[str, Callable[[TubeStatistics], str]], ...] = (
        *((shown, figure_cell(shown)) for shown in shown_figures(report)),
        ("acknowledged/s", lambda tube: ratio(tube.acks_per_second)),
        ("takes per ack", lambda tube: ratio(tube.takes_per_ack)),
    )
    rows = [[tube.name, *(cell(tube) for _, cell in columns)] for tube in lines_of(report)]
    heads = [head.replace("_", " ") for head, _ in columns]
    return Table("Tubes", ["tube", *heads], rows)


def shown_figures(report: Report) -> list[str]:
    """Return the figures of the table of tubes: those of each report, and others above 0."""
    names = [figure.name for figure in FIGURES if figure.name != "failures"]
    return [name for name in names if name in USUAL_FIGURES or report.total.count(name)]


def figure_cell(figure: str) -> Callable[[TubeStatistics], str]:
    """Return the function that writes a figure of a tube."""
    return lambda tube: count(tube.count(figure))


def states(report: Report) -> Table:
    """Return the table of tasks by state at the end of the report; without rows if unknown."""
    heads = ["tube", *STATES, "total"]
    if not report.is_from_the_start:
        return Table("Tasks at the end", heads, [])
    rows = []
    for tube, tasks in report.tasks().items():
        numbers = [tasks.get(state, 0) for state in STATES]
        rows.append([tube, *(count(number) for number in (*numbers, sum(numbers)))])
    return Table("Tasks at the end", heads, rows)


def times(report: Report) -> Table:
    """Return the table of wait and run durations per tube."""
    heads = ["tube"]
    for phase in ("wait", "run"):
        heads += [f"{phase} p50", f"{phase} p95", f"{phase} p99", f"{phase} max"]
    rows = []
    for tube in lines_of(report):
        row = [tube.name]
        for spread in (tube.wait, tube.run):
            row += [duration(spread.at(quantile)) for quantile in (0.5, 0.95, 0.99)]
            row.append(duration(spread.longest if spread.count else None))
        rows.append(row)
    return Table("Times", heads, rows)


def failures(report: Report) -> Table:
    """Return the table of failures by reason."""
    rows = [
        [
            f"{one.tube}: {one.reason or one.kind}",
            one.kind,
            count(one.count),
            instant(one.last_ms),
            one.message,
        ]
        for one in report.failures
    ]
    others = report.total.count("failures") - sum(one.count for one in report.failures)
    if others:
        rows.append([OTHER_FAILURES, NONE, count(others), NONE, NONE])
    heads = ["tube: reason", "ended by", "times", "last", "example"]
    return Table("Failures", heads, rows, texts=("ended by", "example"))


def attempts(report: Report) -> Table:
    """Return the table of acknowledged tasks by attempt."""
    found = {(one.tube, one.attempt): one.tasks for one in report.attempts}
    numbers = sorted({one.attempt for one in report.attempts})
    rows = [
        [tube.name, *(count(found.get((tube.name, number), 0)) for number in numbers)]
        for tube in report.tubes
    ]
    return Table("Acknowledged at attempt", ["tube", *map(attempt_text, numbers)], rows)


def attempt_text(attempt: int) -> str:
    """Return the number of an attempt as text; "20+" for ATTEMPTS_MAX and all later attempts."""
    return f"{attempt}+" if attempt == ATTEMPTS_MAX else str(attempt)


def text(table: Table) -> str:
    """Return a table as lines of aligned text."""
    are_texts = [not place or head in table.texts for place, head in enumerate(table.heads)]
    rows = [list(table.heads), *(list(row) for row in table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.heads))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(row, widths, are_texts, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join([table.title, *(f"  {line}" for line in lines)])


def headline(report: Report) -> str:
    """Return a one-sentence summary of the report."""
    first_ms = min(part.first_ms for part in report.parts)
    last_ms = max(part.last_ms for part in report.parts)
    return (
        f"{counted(report.events, 'event')} of {counted(report.total.count('put'), 'task')} in"
        f" {counted(report.tube_count, 'tube')}, {instant(first_ms)} to {instant(last_ms)} UTC"
        f" ({duration(last_ms - first_ms)}); {counted(len(report.parts), 'partition')},"
        f" {proof(report)}"
    )


def proof(report: Report) -> str:
    """Return a sentence on completeness, as proven by the sequence numbers."""
    if report.is_filtered:
        return "these tubes only"
    return "every event exactly once" if report.is_complete else "WITH GAPS"


def as_text(report: Report, changed: Sequence[Table] = ()) -> str:
    """Return the whole report as text, with what has changed at the top."""
    found = [text(table) for table in (*changed, *tables(report)) if table.rows]
    return "\n\n".join([f"{report.source}: {headline(report)}", *found]) + "\n"


def as_json(report: Report) -> str:
    """Return all numbers of a report as JSON."""
    found = {"format": JSON_FORMAT, **asdict(report), "is_complete": report.is_complete}
    return json.dumps(found, indent=1) + "\n"


def csv_files(report: Report) -> dict[str, str]:
    """Return the numbers of a report as CSV, by file name."""
    tube_rows: list[dict[str, Cell]] = []
    for tube in lines_of(report):
        row: dict[str, Cell] = {"tube": tube.name}
        row |= {figure.name: tube.count(figure.name) for figure in FIGURES}
        row["acks_per_second"] = tube.acks_per_second
        for phase, spread in (("wait", tube.wait), ("run", tube.run)):
            for quantile in (0.5, 0.95, 0.99):
                row[f"{phase}_p{quantile * 100:.0f}_ms"] = spread.at(quantile)
            row[f"{phase}_max_ms"] = spread.longest
        tube_rows.append({**row, "attempts_max": tube.attempts_max})
    return {
        "tubes.csv": as_csv(tube_rows),
        "transitions.csv": as_csv([asdict(one) for one in report.transitions]),
        "timeline.csv": as_csv([asdict(moment) for moment in report.timeline]),
        "failures.csv": as_csv([asdict(failure) for failure in report.failures]),
        "attempts.csv": as_csv([asdict(one) for one in report.attempts]),
    }


def as_csv(rows: Sequence[dict[str, Cell]]) -> str:
    """Return rows with equal columns as CSV; empty without rows."""
    if not rows:
        return ""
    written = io.StringIO()
    writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()
