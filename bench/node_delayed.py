"""Measure the lateness of delayed tasks on a running node while very many other tasks wait.

The program puts tasks with a distant due time, and then tasks that become due one after another, in
random order. A consumer waits for the tasks that become due. The program prints the lateness of
each task, by the clock of this machine, which the node uses as well::

    python -m bench.node_delayed                     # with 100 000 waiting tasks
    python -m bench.node_delayed --tasks 1000000     # target size
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.node_backlog import PUT_TASKS, Client, memory
from bench.percentiles import median_and_p99
from taskraft.v1 import task_pb2
from taskraft.v1 import task_service_pb2 as pb
from tools.local_cluster import LocalCluster

TUBE: Final = "delayed"
FAR_MS: Final = 3_600_000
FAR_SPAN_MS: Final = 10_000_000
FIRST_MS: Final = 5_000
"""Time from the puts until the first of the near tasks is due, in ms."""
EVERY_MS: Final = 50
WAIT_MS: Final = 2_000
BODY_BYTES: Final = 100


def now_ms() -> int:
    """Return the time of this machine, in ms."""
    return time.time_ns() // 1_000_000


def put(client: Client, times_ms: Sequence[int]) -> None:
    """Put one task per due time; the payload is the due time."""
    for first in range(0, len(times_ms), PUT_TASKS):
        specs = [
            task_pb2.TaskSpec(payload=at_ms.to_bytes(BODY_BYTES, "big"), visible_at_ms=at_ms)
            for at_ms in times_ms[first : first + PUT_TASKS]
        ]
        client.tasks.PutTasks(pb.PutTasksRequest(tube=TUBE, tasks=specs))


def arrivals(client: Client, count: int) -> Iterator[tuple[int, int]]:
    """Take `count` tasks as they arrive; yield due time and arrival time."""
    source = pb.TakeSource(tube=TUBE)
    while count > 0:
        request = pb.TakeTasksRequest(sources=[source], tasks_max=100, wait_ms=WAIT_MS)
        tasks = client.tasks.TakeTasks(request).tasks
        came_ms = now_ms()
        for task in tasks:
            yield int.from_bytes(task.spec.payload, "big"), came_ms
        if tasks:
            client.ack([task.token for task in tasks])
        count -= len(tasks)


def main() -> int:
    """Measure the lateness of the tasks, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--near", type=int, default=300)
    arguments = parser.parse_args()
    draw = random.Random(7)
    with (
        tempfile.TemporaryDirectory(prefix="taskraft-") as folder,
        LocalCluster(1, Path(folder) / "delayed") as cluster,
    ):
        (node,) = cluster.nodes
        client = Client(node)
        client.create(TUBE)
        far_ms = now_ms() + FAR_MS
        put(client, [far_ms + draw.randrange(FAR_SPAN_MS) for _ in range(arguments.tasks)])
        first_ms = now_ms() + FIRST_MS
        near = [first_ms + number * EVERY_MS for number in range(arguments.near)]
        put(client, draw.sample(near, len(near)))
        came = list(arrivals(client, arguments.near))
        late_ms = sorted(at_ms - due_ms for due_ms, at_ms in came)
        in_order = sum(before <= after for (before, _), (after, _) in pairwise(came))
        client.close()
        median, p99 = median_and_p99(late_ms)
        print(
            f"{arguments.near} tasks, one per {EVERY_MS} ms, {arguments.tasks} other tasks: "
            f"lateness min {late_ms[0]} ms, median {median:.0f} ms, p99 {p99:.0f} ms, "
            f"max {late_ms[-1]} ms; {in_order} of {len(came) - 1} in order of due time; "
            f"{memory(node)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
