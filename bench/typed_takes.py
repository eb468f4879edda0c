"""Measure a take of one type behind few and behind very many READY tasks of another type.

The program prints the CPU time of a take by the number of tasks before it, and the ratio. It also
prints both numbers for takes that find nothing: of a missing type, and with a priority bound.

Run: `python -m bench.typed_takes [--before 100,100000] [--kind fifottl|utubettl]`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.core_queue import SESSION, CoreQueue, bodies, cpu_ns
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.operations.take import Take, TakeResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from taskraft_service.queue.entities.task_view import TaskView

TAKES_PER_ROUND = 200
ROUNDS = 15
TASKS_PER_PUT = 1_000
COMMON: Final = "resize"
RARE: Final = "invoice"
TAKES: Final[Mapping[str, tuple[Take, int]]] = {
    "take of 1 of a type": (Take([], SESSION, types=[RARE]), 1),
    "take of 20 of a type": (Take([], SESSION, 20, types=[RARE]), 20),
    "take of a type that is not there": (Take([], SESSION, types=["none"]), 0),
    "take of nothing urgent": (Take([], SESSION, priority_bound=-1), 0),
}
"""Takes, with the tasks that each finds."""


def prepare(core: CoreQueue, tube: str, kind: TubeKind, before: int) -> None:
    """Put the tasks of the other type; in kinds with sub-queues, each in its own sub-queue."""
    core.create(tube, kind)
    for first in range(0, before, TASKS_PER_PUT):
        count = min(TASKS_PER_PUT, before - first)
        if kind is TubeKind.FIFOTTL:
            core.put(tube, bodies(count, type=COMMON))
        else:
            names = range(first, first + count)
            core.put(tube, [t for n in names for t in bodies(1, type=COMMON, subqueue=str(n))])
    core.collect()


def take(core: CoreQueue, tube: str, wish: Take) -> Sequence[TaskView]:
    """Take tasks with the given filter."""
    (result,) = core.apply(
        Take([tube], SESSION, wish.tasks_max, types=wish.types, priority_bound=wish.priority_bound)
    )
    assert isinstance(result, TakeResult)
    return result.tasks


def round_us(core: CoreQueue, tube: str, kind: TubeKind, wish: Take, found: int) -> float:
    """Return the CPU time per task in µs, or per take if nothing is found."""
    for number in range(TAKES_PER_ROUND if found else 0):
        place = {"subqueue": f"rare{number}"} if kind is TubeKind.UTUBETTL else {}
        core.put(tube, bodies(1, type=RARE, **place))
    core.collect()
    began = cpu_ns()
    taken = [take(core, tube, wish) for _ in range(TAKES_PER_ROUND // (found or 1))]
    spent = cpu_ns() - began
    for tasks in taken:
        assert len(tasks) == found
        if tasks:
            assert tasks[0].body
            core.ack(tasks)
    return spent / TAKES_PER_ROUND / 1_000


def main() -> None:
    """Measure the takes, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", default="100,100000")
    parser.add_argument("--kind", choices=("fifottl", "utubettl"), default="fifottl")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.before.split(",")]
    kind = TubeKind[arguments.kind.upper()]
    with tempfile.TemporaryDirectory() as path:
        core = CoreQueue(Path(path))
        for count in counts:
            prepare(core, f"before{count}", kind, count)
        spare_the_collector()
        for name, (wish, found) in TAKES.items():
            spent: dict[int, list[float]] = {count: [] for count in counts}
            for _ in range(ROUNDS):  # alternate, so that other load affects both
                for count in counts:
                    spent[count].append(round_us(core, f"before{count}", kind, wish, found))
            costs = {count: median(rounds) for count, rounds in spent.items()}
            listed = ", ".join(f"behind {count} {cost:.1f} µs" for count, cost in costs.items())
            ratio = costs[counts[-1]] / costs[counts[0]]
            print(f"{name}, {arguments.kind}: {listed}; ratio {ratio:.2f}")
        core.close()


if __name__ == "__main__":
    main()
