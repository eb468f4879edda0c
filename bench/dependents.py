"""Measure the end of one task that very many tasks depend on: time per entry, and memory.

The program prints the CPU time of a put of 1 000 dependent tasks, of the acknowledgement itself,
and of the entries that release the dependents: median and maximum, with write-behind. It also
prints the resident memory before and after.

Run: `python -m bench.dependents [--tasks 1000000]`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.core_queue import CoreQueue, bodies, cpu_ns, resident_bytes
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.new_task import Dependencies, TaskReference
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind

TUBE = "chain"
TASKS_PER_PUT = 1_000
MIB = 1 << 20


def milliseconds(times_ns: list[int]) -> str:
    """Return the median and the maximum of times in ms."""
    return f"median {median(times_ns) / 1e6:.1f} ms, maximum {max(times_ns) / 1e6:.1f} ms"


def put_waiting(core: CoreQueue, tasks: int) -> None:
    """Put tasks that depend on the first task."""
    after = Dependencies((TaskReference(TUBE, 1),))
    times: list[int] = []
    for first in range(0, tasks, TASKS_PER_PUT):
        count = min(TASKS_PER_PUT, tasks - first)
        waiting = [replace(task, dependencies=after) for task in bodies(count)]
        begun = cpu_ns()
        core.put(TUBE, waiting)
        times.append(cpu_ns() - begun)
    print(f"put of {TASKS_PER_PUT} dependent tasks: {milliseconds(times)}")


def end_first(core: CoreQueue, tasks: int) -> None:
    """Acknowledge the first task, and apply entries until its dependents are released."""
    (first,) = core.take(TUBE, 10)
    times: list[int] = []
    begun = cpu_ns()
    core.ack([first])
    times.append(cpu_ns() - begun)
    print(f"acknowledgement of their dependency: {times[0] / 1e6:.1f} ms")
    while core.queue.next_deadline_ms() == core.now_ms:
        begun = cpu_ns()
        core.apply()
        times.append(cpu_ns() - begun)
    (counts,) = core.queue.statistics([TUBE])
    assert counts.states[State.READY] == tasks
    print(
        f"{tasks} tasks released in {len(times)} entries, {milliseconds(times)}, "
        f"total {sum(times) / 1e9:.2f} s"
    )


def main() -> None:
    """Measure the end of the awaited task, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    tasks = parser.parse_args().tasks
    spare_the_collector()
    with tempfile.TemporaryDirectory(prefix="taskraft-bench-") as directory:
        core = CoreQueue(Path(directory))
        core.create(TUBE, TubeKind.FIFOTTL)
        core.put(TUBE, bodies(1))
        before = resident_bytes()
        put_waiting(core, tasks)
        core.collect()
        held = resident_bytes()
        end_first(core, tasks)
        after = resident_bytes()
        print(
            f"resident: {before / MIB:.0f} MiB before, {held / MIB:.0f} MiB while they are HELD, "
            f"{after / MIB:.0f} MiB when all are READY"
        )
        core.close()


if __name__ == "__main__":
    main()
