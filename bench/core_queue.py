"""Drive one queue core on RocksDB, without network and without Raft."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

from taskraft_service.machine.collect_policy import COLLECT_TASKS
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.rocks import RocksStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_service.queue.entities.task_view import TaskView
    from taskraft_service.queue.operations.registry import Command, Result

BLOCK_CACHE_BYTES = 64 * 1024 * 1024
WRITE_BUFFER_BYTES = 32 * 1024 * 1024
ENTRIES_PER_COLLECT = 256
"""Number of entries between two collects, as on a node under load."""
STARTED_MS = 1_000_000
SESSION = "consumer"


class CoreQueue:
    """A queue in a directory; it numbers its entries and collects at regular intervals."""

    def __init__(self, path: Path) -> None:
        """Open a directory; in a new directory, create a session for takes."""
        self.store = RocksStore(path / "state", BLOCK_CACHE_BYTES, WRITE_BUFFER_BYTES)
        self.queue = Queue(self.store, Limits())
        self.index = self.queue.applied_index
        self.now_ms = max(self.queue.now_ms, STARTED_MS)
        self._waiting = 0
        if self.index == 0:
            self.apply(Startup(1, 15_000, "bench", 8))
            self.apply(OpenSession(SESSION, ttr_ms=1_000_000_000))

    def apply(self, *commands: Command) -> Sequence[Result]:
        """Apply one entry; collect when it is due."""
        self.index += 1
        results = self.queue.apply(self.index, self.now_ms, commands)
        self._waiting += 1
        changed, _ = self.queue.unwritten_tasks
        if self._waiting >= ENTRIES_PER_COLLECT or changed >= COLLECT_TASKS:
            self.collect()
        return results

    def create(self, name: str, kind: TubeKind, options: TubeOptions | None = None) -> None:
        """Create a tube."""
        self.apply(CreateTube(name, kind, options or TubeOptions()))

    def put(self, tube: str, tasks: Sequence[NewTask]) -> None:
        """Put tasks with a request id, as producers do."""
        self.apply(Put(tube, tasks, request_id=f"p{self.index}"))

    def take(self, tube: str, tasks_max: int, session: str = SESSION) -> Sequence[TaskView]:
        """Take tasks."""
        (result,) = self.apply(Take([tube], session, tasks_max=tasks_max))
        assert isinstance(result, TakeResult)
        return result.tasks

    def ack(self, tasks: Sequence[TaskView]) -> None:
        """Acknowledge tasks."""
        tokens = [task.token for task in tasks]
        self.apply(Settle([Ack(tokens)], request_id=f"a{self.index}"))

    def collect(self) -> None:
        """Write changed state to the store."""
        self.store.write(self.queue.collect_writes())
        self.queue.look_ahead()
        while self.queue.ahead:
            self.queue.read_ahead()
        self._waiting = 0

    def close(self) -> None:
        """Write everything and close the files."""
        self.collect()
        self.store.flush()
        self.store.close()


def cpu_ns() -> int:
    """Return the CPU time of this thread, without RocksDB's background threads."""
    return time.thread_time_ns()


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def bodies(count: int, **options: str | int) -> list[NewTask]:
    """Return new tasks of 100 bytes."""
    body = b"x" * 100
    return [NewTask(body, len(body), **options) for _ in range(count)]  # type: ignore[arg-type]  # names of fields
