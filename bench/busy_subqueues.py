"""Repeat tarantool/queue's benchmark of busy sub-queues on the queue core.

The original has 10 sub-queues, 10 consumers and a number of tasks per sub-queue. All tasks are put
first. Then each consumer repeatedly takes one task, yields, and acknowledges it until no task is
left. In this program, the requests of all consumers in one turn form one log entry, as on a leader
with concurrent consumers. The program prints the time of the puts, and of takes and acks.
tarantool/queue needs one minute for 10 sub-queues of 150 000 tasks.

Run: `python -m bench.busy_subqueues [--tasks N] [--subqueues N] [--tubes N]`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.core_queue import SESSION, CoreQueue, bodies, cpu_ns
from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube_options import TubeKind
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take, TakeResult

CONSUMERS = 10
BATCH = 100


def run(core: CoreQueue, tubes: int, subqueues: int, tasks: int) -> tuple[float, float, float]:
    """Return the seconds of the puts, the seconds of takes and acks, and the CPU seconds of all."""
    began, began_ns = time.perf_counter(), cpu_ns()
    names = [f"tube{number}" for number in range(tubes)]
    for name in names:
        core.create(name, TubeKind.UTUBE)
        for subqueue in range(subqueues):
            batch = bodies(BATCH, subqueue=str(subqueue))
            for _ in range(tasks // BATCH):
                core.put(name, batch)
    put_s = time.perf_counter() - began
    began = time.perf_counter()
    for name in names:
        left = subqueues * tasks
        taken: list[TaskView] = []
        takes = [Take([name], SESSION)] * CONSUMERS
        while left:
            acks = [Settle([Ack([task.token])]) for task in taken]
            left -= len(acks)
            results = core.apply(*acks, *takes)
            taken = [
                task
                for result in results
                if isinstance(result, TakeResult)
                for task in result.tasks
            ]
    return put_s, time.perf_counter() - began, (cpu_ns() - began_ns) / 1e9


def main() -> None:
    """Measure the busy sub-queues, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=15_000, help="number of tasks per sub-queue")
    parser.add_argument("--subqueues", type=int, default=10)
    parser.add_argument("--tubes", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        core = CoreQueue(Path(path))
        spare_the_collector()
        put_s, rest_s, cpu_s = run(core, arguments.tubes, arguments.subqueues, arguments.tasks)
        core.close()
    total = arguments.tubes * arguments.subqueues * arguments.tasks
    print(
        f"busy sub-queues, {arguments.tubes} tubes of {arguments.subqueues} sub-queues of "
        f"{arguments.tasks} tasks: put {put_s:.1f} s, take + ack one by one {rest_s:.1f} s, "
        f"together {cpu_s / total * 1e6:.1f} µs of CPU per task"
    )


if __name__ == "__main__":
    main()
