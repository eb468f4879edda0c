"""Measure the queue of a node with a very large backlog: memory, restart, cost of a take.

The program fills a backlog, closes it, and opens it again in a new process, so that the memory is
that of a restarted node; the directory can be kept. Then it takes and acknowledges tasks from the
backlog and, for comparison, from a tube without a backlog.

Run: `python -m bench.backlog [--tasks N] [--directory PATH]`; the target size is 5 000 000.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.core_queue import CoreQueue, bodies, cpu_ns, resident_bytes
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.tube_options import TubeKind

BATCH = 100
BATCHES_PER_ROUND = 30
"""Number of batches of a round: so few that the core does not collect by itself, because collection
is measured separately.
"""
ROUNDS = 15
MIB = 1024 * 1024


def fill(directory: Path, tasks: int) -> None:
    """Put the tasks of the backlog."""
    core = CoreQueue(directory)
    spare_the_collector()
    core.create("backlog", TubeKind.FIFOTTL)
    core.create("empty", TubeKind.FIFOTTL)
    batch = bodies(BATCH)
    began, began_ns = time.perf_counter(), cpu_ns()
    for _ in range(tasks // BATCH):
        core.put("backlog", batch)
    put_s, put_ns = time.perf_counter() - began, cpu_ns() - began_ns
    print(
        f"put {tasks} tasks of 100 bytes: {put_s:.1f} s, {put_ns / tasks / 1_000:.1f} µs of CPU "
        f"per task; {resident_bytes() / MIB:.0f} MiB resident",
        flush=True,
    )
    core.close()


def reopen(directory: Path) -> None:
    """Open the backlog, and take from it."""
    before = resident_bytes()
    began = time.perf_counter()
    core = CoreQueue(directory)
    (first,) = core.take("backlog", 1)
    opened_s = time.perf_counter() - began
    print(
        f"reopened and took task {first.id} after {opened_s:.2f} s; resident "
        f"{resident_bytes() / MIB:.0f} MiB ({before / MIB:.0f} MiB before opening)",
        flush=True,
    )
    core.ack([first])
    spare_the_collector()
    parts = ("take", "ack", "behind")
    costs: dict[str, dict[str, list[float]]] = {
        tube: {part: [] for part in parts} for tube in ("backlog", "empty")
    }
    for _ in range(ROUNDS):  # alternate, so that other load on the machine affects both
        for tube, cost in costs.items():
            for part, spent_us in zip(parts, round_us(core, tube), strict=True):
                cost[part].append(spent_us)
    medians = {
        tube: {part: median(cost[part][2:]) for part in parts} for tube, cost in costs.items()
    }
    for tube, middle in medians.items():
        detail = ", ".join(f"{part} {spent:.2f}" for part, spent in middle.items())
        print(f"CPU per task in batches of {BATCH}, {tube}: {detail} µs")
    ratio = medians["backlog"]["take"] / medians["empty"]["take"]
    whole = sum(medians["backlog"].values()) / sum(medians["empty"].values())
    print(
        f"ratio of a take {ratio:.2f}; of take, ack and write-behind {whole:.2f}; "
        f"{resident_bytes() / MIB:.0f} MiB resident"
    )
    core.close()


def round_us(core: CoreQueue, tube: str) -> tuple[float, float, float]:
    """Return the CPU time per task in µs of take, ack, and the write-behind after them."""
    if tube == "empty":
        for _ in range(BATCHES_PER_ROUND):
            core.put(tube, bodies(BATCH))
    core.collect()
    take_ns = ack_ns = 0
    for _ in range(BATCHES_PER_ROUND):
        began = cpu_ns()
        taken = core.take(tube, BATCH)
        take_ns += cpu_ns() - began
        assert len(taken) == BATCH
        began = cpu_ns()
        core.ack(taken)
        ack_ns += cpu_ns() - began
    began = cpu_ns()
    core.collect()
    tasks = BATCHES_PER_ROUND * BATCH * 1_000
    return take_ns / tasks, ack_ns / tasks, (cpu_ns() - began) / tasks


def main() -> None:
    """Measure both settings, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=300_000)
    parser.add_argument(
        "--directory", type=Path, help="data directory to keep; filled if it is new"
    )
    parser.add_argument("--reopen", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.directory or Path(temporary)
        if arguments.reopen:
            reopen(directory)
            return
        if not (directory / "state").exists():
            directory.mkdir(parents=True, exist_ok=True)
            fill(directory, arguments.tasks)
        command = [sys.executable, "-m", "bench.backlog", "--reopen", "--directory", str(directory)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
