"""Waiting tasks are read many at a time, and only as many as memory has room for."""

from __future__ import annotations

from service.queue.commands import (
    CreateTube,
    NewTask,
    Put,
    Startup,
    Take,
    TubeKind,
    TubeOptions,
)
from service.queue.limits import Limits
from service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

TASKS = 40


class CountingStore(MemoryStore):
    """Counts how often it is asked for one thing."""

    def __init__(self, pairs=None):
        super().__init__(pairs)
        self.asked = 0

    def get(self, key):
        self.asked += 1
        return super().get(key)


def with_backlog(*commands, **limits):
    """Return a reopened queue with a tube of waiting tasks, and its store."""
    queue = Queue(MemoryStore(), Limits())
    tube = CreateTube("mail", TubeKind.UTUBETTL, TubeOptions())
    plain = CreateTube("plain", TubeKind.FIFOTTL, TubeOptions())
    queue.apply(1, 1_000, [Startup(1, 0, "feed", 1), tube, plain, *commands])
    store = CountingStore()
    store.write(queue.collect_writes())
    queue = Queue(store, Limits(**limits))
    store.asked = 0
    return queue, store


def tasks(count, **wishes):
    return [NewTask(b"body", 4, **wishes) for _ in range(count)]


def resident(queue, tube):
    return len(queue._ledger.tubes[tube].tasks)


def test_a_take_reads_what_comes_behind_with_one_look():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), read_tasks_max=10)
    (result,) = queue.apply(2, 2_000, [Take(["plain"], tasks_max=8)])
    assert [task.id for task in result.tasks] == list(range(1, 9))
    assert store.asked == 0
    assert 8 < resident(queue, "plain") <= 20


def test_a_tube_in_use_is_read_ahead_and_takes_read_nothing():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), read_tasks_max=1, ahead_tasks_max=30)
    queue.apply(2, 2_000, [Take(["plain"])])
    store.write(queue.collect_writes())
    queue.read_ahead()
    assert resident(queue, "plain") >= 30
    store.pairs = {key: value for key, value in store.pairs.items() if key[:1] != b"t"}
    (result,) = queue.apply(3, 3_000, [Take(["plain"], tasks_max=20)])
    assert len(result.tasks) == 20


def test_without_room_nothing_is_read_before_its_turn():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), resident_bytes_max=3, read_tasks_max=10)
    queue.apply(2, 2_000, [Take(["plain"])])
    queue.apply(3, 3_000, [Take(["plain"], tasks_max=30)])
    assert resident(queue, "plain") == 31
    store.write(queue.collect_writes())
    queue.read_ahead()
    assert resident(queue, "plain") == 31


def test_deadlines_that_are_due_together_are_read_together():
    queue, store = with_backlog(Put("plain", tasks(TASKS, delay_ms=500)))
    queue.apply(2, 5_000, [])
    assert store.asked == 0
    assert queue.ready_count("plain") == TASKS


def test_tasks_far_apart_are_asked_for_by_their_keys():
    far = [task for number in range(TASKS) for task in tasks(1, priority=-(number % 2))]
    queue, store = with_backlog(Put("plain", far), read_tasks_max=4)
    (result,) = queue.apply(2, 2_000, [Take(["plain"], tasks_max=TASKS // 2)])
    assert [task.id for task in result.tasks] == list(range(2, TASKS + 1, 2))
    assert store.asked == 0
