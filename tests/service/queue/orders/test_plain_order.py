"""The contents of the orders by type."""

from __future__ import annotations

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore


def test_a_typed_task_that_was_never_ready_leaves_no_order_behind():
    queue = Queue(MemoryStore(), Limits())
    new = NewTask(b"", 0, type="b", delay_ms=1_000)
    queue.apply(1, 0, [CreateTube("t", TubeKind.FIFOTTL, TubeOptions()), Put("t", [new])])
    (taken,) = queue.apply(2, 0, [Take(["t"], task_id=1)])
    assert [task.id for task in taken.tasks] == [1]
    queue.collect_writes()
    assert queue._state.tubes["t"].ready.types._orders == {}
