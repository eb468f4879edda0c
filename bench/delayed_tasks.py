"""Measure very many delayed tasks: their cost while they wait, and when they become READY.

The program puts tasks with random delays and moves the clock in steps of 10 ms, as entries of a
leader under light load do. It checks that every due task fires in the next entry, and that no entry
fires more tasks than the limit. Then it repeats the measurement after a time without a leader.

Run: `python -m bench.delayed_tasks [--tasks N]`; the target size is 1 000 000.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from bench.core_queue import CoreQueue, cpu_ns, resident_bytes
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.limits import Limits

BATCH = 100
SPAN_MS = 1_000_000
FIRST_MS = 3_600_000
STEP_MS = 10
MIB = 1024 * 1024
PER_ENTRY = Limits().steps_alone_max


def fill(core: CoreQueue, tasks: int) -> float:
    """Put the delayed tasks; return the CPU time per task in µs."""
    core.create("delayed", TubeKind.FIFOTTL)
    body = b"x" * 100
    began = cpu_ns()
    for first in range(0, tasks, BATCH):
        # A multiplier that is coprime to the span spreads the delays evenly over it.
        delays = (FIRST_MS + number * 7_919 % SPAN_MS for number in range(first, first + BATCH))
        core.put("delayed", [NewTask(body, len(body), delay_ms=delay) for delay in delays])
    core.collect()
    return (cpu_ns() - began) / tasks / 1_000


def fire(core: CoreQueue, tasks: int) -> tuple[list[float], int]:
    """Let half of the deadlines fire in steps; return the ms per entry, and the number of tasks."""
    entry_ms: list[float] = []
    fired = 0
    while fired < tasks // 2:
        due_ms = core.queue.next_deadline_ms()
        assert due_ms is not None
        assert due_ms > core.now_ms, "a due task has not fired"
        core.now_ms = max(core.now_ms, due_ms) + STEP_MS
        entry_ms.append(entry(core))
        fired = ready(core)
    return entry_ms, fired


def catch_up(core: CoreQueue, tasks: int) -> list[float]:
    """Let the other deadlines fire at once; return the CPU ms per entry."""
    core.now_ms += FIRST_MS + SPAN_MS
    entry_ms: list[float] = []
    fired = ready(core)
    while fired < tasks:
        entry_ms.append(entry(core))
        assert ready(core) - fired <= PER_ENTRY
        fired = ready(core)
    return entry_ms


def entry(core: CoreQueue) -> float:
    """Apply an entry without commands; return its CPU ms."""
    began = cpu_ns()
    core.apply()
    return (cpu_ns() - began) / 1e6


def ready(core: CoreQueue) -> int:
    """Return the number of READY tasks."""
    (statistics,) = core.queue.statistics(["delayed"])
    return statistics.states[State.READY]


def main() -> None:
    """Measure the delayed tasks, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        core = CoreQueue(Path(path))
        spare_the_collector()
        put_us = fill(core, arguments.tasks)
        print(
            f"{arguments.tasks} delayed tasks: put {put_us:.1f} µs of CPU per task, resident "
            f"{resident_bytes() / MIB:.0f} MiB",
            flush=True,
        )
        idle_ms = median(entry(core) for _ in range(1_000))
        entry_ms, fired = fire(core, arguments.tasks)
        print(
            f"an entry without due tasks: {idle_ms * 1_000:.1f} µs of CPU; in steps of "
            f"{STEP_MS} ms: {sum(entry_ms) * 1_000 / fired:.1f} µs per task, longest entry "
            f"{max(entry_ms):.1f} ms, no task later than its step",
            flush=True,
        )
        entry_ms = catch_up(core, arguments.tasks)
        print(
            f"due at once: {sum(entry_ms) * 1_000 / (arguments.tasks - fired):.1f} µs per "
            f"task in {len(entry_ms)} entries, longest entry {max(entry_ms):.1f} ms"
        )
        core.close()


if __name__ == "__main__":
    main()
