"""Print results as a Markdown table for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bench.cell_results import CellResult, MedianRange
from bench.machine import Machine

COLUMNS: Final = (
    "workload",
    "tasks/s",
    "p50 ms",
    "p99 ms",
    "CPU ms/1000",
    "load's CPU",
    "syncs/1000",
    "entries/1000",
    "errors",
)


def short(value: float) -> str:
    """Return a number with two or three significant digits: 38k, 7.1k, 420, 3.2, 0.05."""
    if value >= 10_000:
        return f"{value / 1_000:.0f}k"
    if value >= 1_000:
        return f"{value / 1_000:.1f}k"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2f}"


def with_range(spread: MedianRange) -> str:
    """Return a median with its range."""
    if spread.least == spread.most:
        return short(spread.median)
    return f"{short(spread.median)} ({short(spread.least)}..{short(spread.most)})"


def milliseconds(spread: MedianRange) -> str:
    """Return a median of µs in ms."""
    return short(spread.median / 1_000)


def row(outcome: CellResult) -> tuple[str, ...]:
    """Return the cells of one row."""
    errors = ", ".join(f"{reason} {count}" for reason, count in outcome.errors.items())
    has_log = outcome.nodes > 0
    return (
        outcome.cell.title,
        with_range(outcome.tasks_per_second) + ("?" if outcome.is_doubtful else ""),
        milliseconds(outcome.latency_us("p50_us")),
        milliseconds(outcome.latency_us("p99_us")),
        short(outcome.server_cpu_ms.median),
        short(outcome.generator_cpu_ms.median),
        short(outcome.syncs.median) if has_log else "-",
        short(outcome.entries.median) if has_log else "-",
        errors or "-",
    )


def heading(nodes: int) -> str:
    """Return the heading of a table."""
    if nodes == 0:
        return "Floor: the same library with empty handlers, one process"
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table with columns of equal width."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for number, cells in enumerate(rows):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"| {' | '.join(padded)} |"
        if number == 0:
            yield f"| {' | '.join('-' * width for width in widths)} |"


def render(machine: Machine, outcomes: Sequence[CellResult]) -> str:
    """Return the facts about the machine, and one table per kind of server."""
    modified = ", modified" if machine.is_modified else ""
    facts = (
        f"{machine.cores} cores ({machine.processor}), {machine.memory_mib // 1024} GiB, Linux"
        f" {machine.kernel}, Python {machine.python}, grpcio {machine.grpcio}, commit"
        f" {machine.commit}{modified}; fdatasync p50 {machine.fdatasync_p50_us} µs just before."
    )
    legend = "Medians (min..max); ? = in most runs other programs used over 20 % of the machine."
    lines = [facts, legend]
    for nodes in sorted({outcome.nodes for outcome in outcomes}):
        rows = [row(outcome) for outcome in outcomes if outcome.nodes == nodes]
        lines += ["", f"### {heading(nodes)}", "", *aligned([COLUMNS, *rows])]
    return "\n".join(lines)
