"""Combine the repetitions of each cell into medians with ranges, and save them as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

from bench.cells import Cell
from bench.load_generator import Run, Window
from bench.machine import Machine

FOLDER: Final = Path("bench/results")

FOREIGN_CPU_PERCENT_MAX: Final = 20
STEAL_PERCENT_MAX: Final = 5
"""Maximum values of a valid run; a run above one of them is doubtful, because other programs used
the machine."""

LATENCY_OF: Final = {"put": "put", "take": "cycle", "cycle": "delivery", "mixed": "delivery"}
"""Operation whose latency a workload's row shows; a stream has settlements instead of calls."""

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


@dataclass(slots=True, frozen=True)
class MedianRange:
    """A median with minimum and maximum."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MedianRange:
        """Return median and range of the values of all repetitions."""
        return cls(median(values), min(values), max(values))


@dataclass(slots=True, frozen=True)
class CellResult:
    """All repetitions of one cell against one kind of server."""

    nodes: int
    """Number of nodes; 0: server with empty handlers."""
    cell: Cell
    runs: Sequence[Run]

    def spread(self, value: Callable[[Run], float]) -> MedianRange:
        """Return median and range of a value of each run."""
        return MedianRange.of([value(run) for run in self.runs])

    @property
    def tasks_per_second(self) -> MedianRange:
        """Processed tasks per second."""
        return self.spread(lambda run: run.tasks_per_second)

    def latency_us(self, percentile: str) -> MedianRange:
        """Return a percentile (``p50_us``...) of the operation that the row shows."""
        wanted = LATENCY_OF[self.cell.workload]

        def of(run: Run) -> float:
            found = run.latency_us.get(wanted) or run.latency_us.get("settle")
            return found[percentile] if found else 0.0

        return self.spread(of)

    @property
    def server_cpu_ms(self) -> MedianRange:
        """CPU time of all nodes per 1000 tasks, in ms."""
        return self.spread(lambda run: run.per_1000_tasks(run.use.server_cpu_ms))

    @property
    def generator_cpu_ms(self) -> MedianRange:
        """CPU time of the load generator per 1000 tasks, in ms."""
        return self.spread(lambda run: run.per_1000_tasks(1_000 * run.generator_cpu_s))

    @property
    def syncs(self) -> MedianRange:
        """Log fsyncs of all nodes per 1000 tasks."""
        return self.spread(lambda run: run.per_1000_tasks(run.use.syncs))

    @property
    def entries(self) -> MedianRange:
        """Log entries per 1000 tasks."""
        return self.spread(lambda run: run.per_1000_tasks(run.use.entries))

    @property
    def errors(self) -> dict[str, int]:
        """Return the errors of all repetitions by reason."""
        reasons = sorted({reason for run in self.runs for reason in run.errors})
        return {reason: sum(run.errors.get(reason, 0) for run in self.runs) for reason in reasons}

    @property
    def is_doubtful(self) -> bool:
        """True if other programs used the machine in more than half of the runs."""
        noisy = [
            run.use.foreign_cpu_percent > FOREIGN_CPU_PERCENT_MAX
            or run.use.steal_percent > STEAL_PERCENT_MAX
            for run in self.runs
        ]
        return 2 * sum(noisy) > len(noisy)

    def summary(self) -> dict[str, Json]:
        """Return the content of the results file for this cell, including all runs."""
        return {
            "nodes": self.nodes,
            **asdict(self.cell),
            "is_doubtful": self.is_doubtful,
            "tasks_per_second": asdict(self.tasks_per_second),
            "p50_us": asdict(self.latency_us("p50_us")),
            "p99_us": asdict(self.latency_us("p99_us")),
            "server_cpu_ms_per_1000_tasks": asdict(self.server_cpu_ms),
            "generator_cpu_ms_per_1000_tasks": asdict(self.generator_cpu_ms),
            "syncs_per_1000_tasks": asdict(self.syncs),
            "entries_per_1000_tasks": asdict(self.entries),
            "errors": dict[str, Json](self.errors),
            "runs": [asdict(run) for run in self.runs],
        }


def save(name: str, machine: Machine, window: Window, outcomes: Sequence[CellResult]) -> Path:
    """Write a results file and return its path."""
    content: Mapping[str, Json] = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": asdict(machine),
        "window": asdict(window),
        "cells": [outcome.summary() for outcome in outcomes],
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
