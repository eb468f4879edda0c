"""Measure put, take and ack on the queue core alone, including write-behind into RocksDB.

Prints one line: the median CPU time of a task's whole cycle over several rounds, and its parts.
Run: `python -m bench.core_cycle [--rounds N] [--batch N] [--backlog N]`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from taskraft_service.process.memory import spare_the_collector
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.rocks import RocksStore

if TYPE_CHECKING:
    from taskraft_service.queue.operations.registry import Command

TASKS_PER_ROUND = 20_000
TASKS_PER_COLLECT = 5_000
BODY = b"x" * 100
BLOCK_CACHE_BYTES = 64 * 1024 * 1024
WRITE_BUFFER_BYTES = 64 * 1024 * 1024


class Cycle:
    """Drives one queue with entries of whole batches, and adds up the time of each part."""

    def __init__(self, store: RocksStore, batch: int) -> None:
        self.store = store
        self.queue = Queue(store, Limits())
        self.batch = batch
        self.tasks = [NewTask(BODY, len(BODY)) for _ in range(batch)]
        self.index = 0
        self.requests = 0
        self.spent = dict.fromkeys(("put", "take", "ack", "collect", "write", "read ahead"), 0)
        self.apply(
            "put",
            Startup(1, 15_000, "bench", 8),
            CreateTube("bench", TubeKind.FIFOTTL, TubeOptions()),
            OpenSession("consumer", ttr_ms=10_000_000),
        )

    def apply(self, part: str, *commands: Command) -> list[object]:
        """Apply one entry and add its time to a part."""
        self.index += 1
        began = time.thread_time_ns()
        results = self.queue.apply(self.index, 1_000_000 + self.index, commands)
        self.spent[part] += time.thread_time_ns() - began
        return list(results)

    def put(self) -> None:
        """Put one batch."""
        self.requests += 1
        (result,) = self.apply("put", Put("bench", self.tasks, request_id=f"p{self.requests}"))
        assert isinstance(result, PutResult)

    def take_and_ack(self) -> None:
        """Take one batch and acknowledge it."""
        (result,) = self.apply("take", Take(["bench"], "consumer", tasks_max=self.batch))
        assert isinstance(result, TakeResult)
        assert len(result.tasks) == self.batch
        self.requests += 1
        tokens = [task.token for task in result.tasks]
        self.apply("ack", Settle([Ack(tokens)], request_id=f"a{self.requests}"))

    def collect(self) -> None:
        """Write changed state to the store."""
        began = time.thread_time_ns()
        writes = list(self.queue.collect_writes())
        collected = time.thread_time_ns()
        self.store.write(writes)
        written = time.thread_time_ns()
        self.queue.look_ahead()
        while self.queue.ahead:
            self.queue.read_ahead()
        self.spent["collect"] += collected - began
        self.spent["write"] += written - collected
        self.spent["read ahead"] += time.thread_time_ns() - written

    def round(self) -> dict[str, float]:
        """Return the CPU time per task in µs, in total and per part."""
        began = time.thread_time_ns()
        self.spent = dict.fromkeys(self.spent, 0)
        per_collect = max(TASKS_PER_COLLECT // self.batch, 1)
        for number in range(TASKS_PER_ROUND // self.batch):
            self.put()
            self.take_and_ack()
            if number % per_collect == per_collect - 1:
                self.collect()
        whole = {"cpu": time.thread_time_ns() - began, **self.spent}
        return {part: spent / TASKS_PER_ROUND / 1_000 for part, spent in whole.items()}


def main() -> None:
    """Measure put, take and ack, and print the costs per task."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--backlog", type=int, default=0, help="number of tasks in the backlog")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        store = RocksStore(Path(path) / "state", BLOCK_CACHE_BYTES, WRITE_BUFFER_BYTES)
        cycle = Cycle(store, arguments.batch)
        for number in range(arguments.backlog // arguments.batch):
            cycle.put()
            if number % 50 == 49:
                cycle.collect()
        cycle.collect()
        spare_the_collector()
        cycle.round()
        rounds = [cycle.round() for _ in range(arguments.rounds)]
    parts = {part: median(spent[part] for spent in rounds) for part in rounds[0]}
    total = parts.pop("cpu")
    detail = ", ".join(f"{part} {spent:.2f}" for part, spent in parts.items())
    print(
        f"core cycle, batches of {arguments.batch}, backlog {arguments.backlog}: "
        f"{total:.2f} µs of CPU per task ({detail})"
    )


if __name__ == "__main__":
    main()
