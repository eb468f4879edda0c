"""Run the load generator, and measure the servers at the start and end of its window."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.cells import Cell
from bench.servers import Server, Use, look, used

BINARY: Final = Path("var/load")
"""The load generator; `make load` builds it."""


class LoadFailed(Exception):
    """The load generator failed; the message is its output."""


@dataclass(slots=True, frozen=True)
class Window:
    """Warm-up time and measured time of a cell."""

    warm_up_ms: int
    duration_ms: int


@dataclass(slots=True, frozen=True)
class Run:
    """One measurement of one cell."""

    seconds: float
    tasks: int
    latency_us: Mapping[str, Mapping[str, int]]
    """For each operation: count, mean_us, p50_us and so on, as the generator prints them."""
    errors: Mapping[str, int]
    is_dry: bool
    """True if the tube was empty before the end of the window, which then ended early."""
    generator_cpu_s: float
    use: Use

    @property
    def tasks_per_second(self) -> float:
        """Processed tasks per second."""
        return self.tasks / self.seconds if self.seconds else 0.0

    def per_1000_tasks(self, amount: float) -> float:
        """Return an amount per 1000 tasks."""
        return 1_000 * amount / self.tasks if self.tasks else 0.0


def execute(
    cell: Cell, target: str, servers: Sequence[Server], window: Window, *further: str
) -> Run:
    """Measure one cell once; ``further`` arguments go to the load generator.

    Raises:
        LoadFailed: the generator failed, or processed no task in the window.
    """
    command = [
        *(str(BINARY), "-addresses", target),
        *("-workload", cell.workload, "-shape", cell.shape, "-consumer", cell.consumer),
        *("-warm-up", f"{window.warm_up_ms}ms", "-duration", f"{window.duration_ms}ms"),
        # The server would delete the tasks of a dropped tube while the next cell is measured.
        "-drop=false",
        *further,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Each line that is not the result marks the start or end of the window: take a snapshot.
        looks, result = [], None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "result":
                result = event
            else:
                looks.append(look(servers))
        complaint = process.stderr.read()
    if process.returncode != 0 or result is None:
        raise LoadFailed(f"{cell.name}: {complaint.strip() or process.returncode}")
    if not result["tasks"]:
        raise LoadFailed(f"{cell.name}: no task was processed; errors {result['errors']}")
    before, after = looks
    return Run(
        seconds=result["seconds"],
        tasks=result["tasks"],
        latency_us=result["latency"],
        errors=result["errors"],
        is_dry=result["ran_dry"],
        generator_cpu_s=result["cpu_seconds"],
        use=used(servers, before, after, result["cpu_seconds"]),
    )
