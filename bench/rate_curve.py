"""Measure the latency of deliveries over the rate of puts, from 50 per second to saturation.

Three nodes over the server of the client port that is installed, loaded by the workload "500 puts a
second" of `bench/README.md` at other rates. The latency is the time from the planned send of a task
to its delivery. Each round measures all rates in turn. Other programs may use the machine, so the
result has, for each rate, the round in which they used least, with their share of the machine.

Run: `make load native && python -m bench.rate_curve` (about two minutes).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.__main__ import DATA, fresh_nodes
from bench.brokers.__main__ import CHOSEN, equal_priorities, run_on_fastest_python
from bench.cell_results import LATENCY_OF
from bench.cells import Cell
from bench.load_generator import Window, execute
from bench.machine import describe
from bench.servers import Server

RATES: Final = (50, 100, 200, 350, 500, 750, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000)
"""Planned puts per second."""
REACHED: Final = 0.97
"""Share of the planned rate below which the nodes are saturated."""
WARM_UP_MS: Final = 500
NODES: Final = 3


@dataclass(frozen=True, slots=True)
class Point:
    """The latency at one rate."""

    rate: int
    """Planned puts per second."""
    delivered: float
    """Deliveries per second that were acknowledged."""
    p50_ms: float
    p99_ms: float
    foreign_percent: float
    """Share of the machine that other programs used, in percent."""

    @property
    def is_saturated(self) -> bool:
        """Whether the nodes delivered less than was put."""
        return self.delivered < REACHED * self.rate


def measure_round(target: str, servers: Sequence[Server], seconds: float) -> Iterator[Point]:
    """Yield a point for each rate, up to the first rate that saturates the nodes."""
    window = Window(WARM_UP_MS, int(1_000 * seconds))
    for rate in RATES:
        cell = Cell("mixed", "clients", "stream")
        run = execute(cell, target, servers, window, "-rate", str(rate))
        latency = run.latency_us[LATENCY_OF[cell.workload]]
        point = Point(
            rate=rate,
            delivered=round(run.tasks_per_second, 1),
            p50_ms=latency["p50_us"] / 1_000,
            p99_ms=latency["p99_us"] / 1_000,
            foreign_percent=round(run.use.foreign_cpu_percent + run.use.steal_percent, 1),
        )
        print(f"  {point}", flush=True)
        yield point
        if point.is_saturated:
            return


def least_disturbed(rounds: Sequence[Sequence[Point]]) -> list[Point]:
    """Return, for each rate, the point of the round in which other programs used least."""
    points = [point for one in rounds for point in one]
    return [
        min((point for point in points if point.rate == rate), key=lambda one: one.foreign_percent)
        for rate in sorted({point.rate for point in points})
    ]


def main() -> None:
    """Measure all rounds, and save the points."""
    run_on_fastest_python("bench.rate_curve")
    parser = argparse.ArgumentParser(prog="python -m bench.rate_curve", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement")
    parser.add_argument("--name", default="rate_curve", help="name of the file in bench/results")
    options = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    machine = describe(DATA)
    rounds = []
    with equal_priorities() as told:
        print(f"{machine.processor}, {machine.cores} cores, commit {machine.commit}; {told}")
        for number in range(1, options.rounds + 1):
            print(f"round {number}", flush=True)
            with fresh_nodes(NODES) as (target, servers):
                rounds.append([*measure_round(target, servers, options.seconds)])
    content = {
        "machine": asdict(machine),
        "interpreter": os.environ[CHOSEN],
        "edge": "native" if find_spec("taskraft_edge") else "grpc",
        "points": [asdict(point) for point in least_disturbed(rounds)],
    }
    path = Path("bench/results") / f"{options.name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
