"""Measure a take with few and with very many busy sub-queues.

Each busy sub-queue has one TAKEN task and some tasks that wait behind it. Free sub-queues have the
tasks that are taken. The program prints the CPU time of a take by the number of busy sub-queues,
and the ratio.

Run: `python -m bench.subqueue_takes [--busy 100,100000] [--waiting N]`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from bench.core_queue import CoreQueue, bodies, cpu_ns
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.operations.sessions import OpenSession

TAKES_PER_ROUND = 200
ROUNDS = 15
SUBQUEUES_PER_PUT = 100


def prepare(core: CoreQueue, tube: str, busy: int, waiting: int) -> None:
    """Put tasks into many sub-queues and take one task of each."""
    core.create(tube, TubeKind.UTUBE)
    core.apply(OpenSession(tube, ttr_ms=1_000_000_000))  # one session may hold 100 000 leases
    for first in range(0, busy, SUBQUEUES_PER_PUT):
        places = range(first, min(first + SUBQUEUES_PER_PUT, busy))
        core.put(
            tube, [NewTask(b"x" * 100, 100, subqueue=f"busy{n}") for n in places] * (1 + waiting)
        )
        taken = core.take(tube, SUBQUEUES_PER_PUT, session=tube)
        assert len(taken) == len(places)
    core.collect()


def round_us(core: CoreQueue, tube: str, tasks_max: int) -> float:
    """Return the CPU time per taken task, in µs."""
    for number in range(TAKES_PER_ROUND):
        core.put(tube, bodies(1, subqueue=f"free{number}"))
    core.collect()
    began = cpu_ns()
    taken = [core.take(tube, tasks_max) for _ in range(TAKES_PER_ROUND // tasks_max)]
    spent = cpu_ns() - began
    for tasks in taken:
        assert len(tasks) == tasks_max
        core.ack(tasks)
    return spent / TAKES_PER_ROUND / 1_000


def main() -> None:
    """Measure the takes, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--busy", default="100,100000")
    parser.add_argument(
        "--waiting", type=int, default=9, help="number of tasks behind each taken task"
    )
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.busy.split(",")]
    with tempfile.TemporaryDirectory() as path:
        core = CoreQueue(Path(path))
        for count in counts:
            prepare(core, f"busy{count}", count, arguments.waiting)
        spare_the_collector()
        for tasks_max in (1, 20):
            spent: dict[int, list[float]] = {count: [] for count in counts}
            for _ in range(ROUNDS):  # alternate, so that other load affects both
                for count in counts:
                    spent[count].append(round_us(core, f"busy{count}", tasks_max))
            costs = {count: median(rounds) for count, rounds in spent.items()}
            listed = ", ".join(f"{count} busy {cost:.1f} µs" for count, cost in costs.items())
            print(
                f"take of {tasks_max} with busy sub-queues with {arguments.waiting} waiting each: "
                f"{listed}; ratio {costs[counts[-1]] / costs[counts[0]]:.2f}"
            )
        core.close()


if __name__ == "__main__":
    main()
