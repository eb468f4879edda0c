"""Compare a report with the last report in the same folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.report.report import OTHER_TUBES, QUANTILES
from taskraft_pipeline.report.tables import (
    JSON_FORMAT,
    Table,
    count,
    duration,
    instant,
    lines_of,
    shown_figures,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from taskraft_pipeline.report.report import DurationStatistics, Report

PHASES: Final = ("wait", "run")
UNCHANGED: Final = "="
"""Content of a cell whose number is as before."""
P99: Final = QUANTILES.index(0.99)


@dataclass(slots=True, frozen=True)
class LastReport:
    """What a later report compares itself with.

    Attributes:
        source: source of the report.
        is_filtered: True if the report had only some tubes.
        positions: last sequence number by partition.
        last_ms: time of the last event.
        counts: figures by tube.
        p99_ms: p99 of waits and runs by tube and phase; absent without durations.
        failures: tube and fingerprint of each failure.
    """

    source: str
    is_filtered: bool
    positions: Mapping[int, int]
    last_ms: int
    counts: Mapping[str, Mapping[str, int]]
    p99_ms: Mapping[tuple[str, str], float]
    failures: frozenset[tuple[str, int]]


def last_report(path: Path) -> LastReport | None:
    """Return the report of a JSON file; None if there is none, or it has another format."""
    try:
        stored = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(stored, dict) or stored.get("format") != JSON_FORMAT:
        return None
    tubes = [stored["total"], *stored["tubes"]]
    return LastReport(
        source=stored["source"],
        is_filtered=stored["is_filtered"],
        positions={part["partition"]: part["last_seq"] for part in stored["parts"]},
        last_ms=max(part["last_ms"] for part in stored["parts"]),
        counts={tube["name"]: tube["counts"] for tube in tubes},
        p99_ms={
            (tube["name"], phase): tube[phase]["quantiles"][P99]
            for tube in tubes
            for phase in PHASES
            if tube[phase]["count"]
        },
        failures=frozenset((one["tube"], one["fingerprint"]) for one in stored["failures"]),
    )


def continues(report: Report, last: LastReport) -> bool:
    """Return whether a report can be compared: same source, and no partition has gone back."""
    ends = {part.partition: part.last_seq for part in report.parts}
    return (report.source, report.is_filtered) == (last.source, last.is_filtered) and all(
        ends.get(partition, -1) >= seq for partition, seq in last.positions.items()
    )


def changes(report: Report, last: LastReport | None) -> list[Table]:
    """Return the tables of the changes since the last report; no table without a last report.

    The last row is of all tubes, also if nothing has changed. A tube that one of the reports counts
    among OTHER_TUBES has no row, because its earlier or later figures are unknown.
    """
    if last is None or not continues(report, last):
        return []
    figures = shown_figures(report)
    heads = ["tube", *(name.replace("_", " ") for name in figures)]
    heads += [f"{phase} p99" for phase in PHASES]
    rows = []
    lines = lines_of(report)
    for tube in lines:
        if tube.name == OTHER_TUBES or (
            tube.name not in last.counts and OTHER_TUBES in last.counts
        ):
            continue
        before = last.counts.get(tube.name, {})
        cells = [signed(tube.count(name) - before.get(name, 0)) for name in figures]
        cells += [
            slower(getattr(tube, phase), last.p99_ms.get((tube.name, phase))) for phase in PHASES
        ]
        if tube is lines[-1] or set(cells) != {UNCHANGED}:
            rows.append([tube.name, *cells])
    title = f"Since the last report, to {instant(last.last_ms)}"
    return [Table(title, heads, rows), new_failures(report, last)]


def signed(difference: int) -> str:
    """Return a difference with its sign."""
    return f"{difference:+,}" if difference else UNCHANGED


def slower(spread: DurationStatistics, before_ms: float | None) -> str:
    """Return the change of a p99 with its sign; the p99 itself if there was none."""
    now_ms = spread.at(0.99)
    if now_ms is None:
        return UNCHANGED
    if before_ms is None:
        return duration(now_ms)
    difference = now_ms - before_ms
    if abs(difference) < 0.5:
        return UNCHANGED
    return f"{'+' if difference > 0 else '-'}{duration(abs(difference))}"


def new_failures(report: Report, last: LastReport) -> Table:
    """Return the table of failures that the last report did not have."""
    rows = [
        [
            f"{one.tube}: {one.reason or one.kind}",
            count(one.count),
            instant(one.last_ms),
            one.message,
        ]
        for one in report.failures
        if (one.tube, one.fingerprint) not in last.failures
    ]
    heads = ["tube: reason", "times", "last", "example"]
    return Table("New failures", heads, rows, texts=("example",))
