"""Ranges of keys are deleted only where no other task has a key in between."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.store import RangeDeletion
from tests.service.queue.memory_store import MemoryStore

TASKS = 40
IDS = st.sets(st.integers(1, TASKS), max_size=TASKS)
PLAIN = NewTask(b"x", 1)
WISHES = st.sampled_from(
    (
        PLAIN,
        PLAIN,
        PLAIN,
        NewTask(b"x", 1, priority=7),
        NewTask(b"x", 1, subqueue="other"),
        NewTask(b"x", 1, type="mail"),
        NewTask(b"x", 1, delay_ms=5),
        NewTask(b"x", 1, ttl_ms=1_000),
        NewTask(b"x" * 2_000, 2_000),
    )
)


class Node:
    """A queue with one tube, to which entries are applied one by one."""

    def __init__(self, kind, neighbours_min):
        self.store = MemoryStore()
        self.queue = Queue(self.store, Limits())
        self.index = 0
        self.neighbours_min = neighbours_min
        self.apply(
            Startup(1, 15_000, "feed", 1),
            CreateTube("a", kind, TubeOptions()),
            OpenSession("s", ttr_ms=10_000),
        )

    def apply(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, 1_000, commands)

    def collect(self):
        with patch(
            "taskraft_service.queue.persistence.task_writes.NEIGHBOURS_MIN", self.neighbours_min
        ):
            writes = list(self.queue.collect_writes())
        self.store.write(writes)
        return writes


def tell(node, tasks, taken, acked, deleted):
    """Put, take and remove tasks, with batches of writes in between."""
    node.apply(Put("a", tasks))
    node.collect()
    for task_id in taken:
        node.apply(Take(["a"], "s", task_id=task_id))
    node.collect()
    tokens = [node.apply(Take(["a"], "s", task_id=task_id))[0] for task_id in acked]
    found = [result.tasks[0].token for result in tokens if getattr(result, "tasks", ())]
    node.apply(Settle([Ack(found)]), Delete("a", ByIds(sorted(deleted))))
    node.collect()
    return node.store.pairs


@given(
    st.sampled_from((TubeKind.FIFO, TubeKind.FIFOTTL, TubeKind.UTUBE, TubeKind.UTUBETTL)),
    st.lists(WISHES, min_size=TASKS, max_size=TASKS),
    IDS,
    IDS,
    IDS,
)
@settings(max_examples=60, deadline=None)
def test_deleting_ranges_equals_single_deletions(kind, tasks, taken, acked, deleted):
    stores = [tell(Node(kind, least), tasks, taken, acked, deleted) for least in (1, 2, 10**9)]
    assert stores[0] == stores[1] == stores[2]


@pytest.mark.parametrize("kind", [TubeKind.FIFO, TubeKind.UTUBE])
def test_many_neighbours_are_deleted_with_two_ranges(kind):
    node = Node(kind, 32)
    node.apply(Put("a", [NewTask(b"x", 1) for _ in range(100)]))
    node.collect()
    node.apply(Delete("a", ByIds(range(2, 100))))
    writes = node.collect()
    assert sum(isinstance(write, RangeDeletion) for write in writes) == 2
    assert [task.id for task in node.queue.list_tasks("a", (), 0, 10)] == [1, 100]


def test_tasks_are_fresh_until_they_are_taken_or_written():
    node = Node(TubeKind.FIFO, 32)
    node.apply(Put("a", [PLAIN] * 5))
    assert node.queue.unwritten_tasks == (5, 5)
    node.apply(Take(["a"], "s", tasks_max=2))
    assert node.queue.unwritten_tasks == (5, 3)
    node.collect()
    assert node.queue.unwritten_tasks == (0, 0)
    node.apply(Take(["a"], "s"))
    assert node.queue.unwritten_tasks == (1, 0), "the store has this task"
