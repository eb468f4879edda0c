"""Waiting tasks are read many at a time, and only as many as fit into memory."""

from __future__ import annotations

from taskraft_service.queue import queue as queue_module
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_state import READY, TAKEN
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.keys import TASK
from tests.service.queue.memory_store import MemoryStore

TASKS = 40


class CountingStore(MemoryStore):
    """Counts reads of one key, and reads of many keys."""

    def __init__(self, pairs=None):
        super().__init__(pairs)
        self.asked = 0
        self.looks: list[bytes] = []

    def get(self, key):
        self.asked += 1
        return super().get(key)

    def get_many(self, keys):
        self.looks.append(keys[0][:1])
        return super().get_many(keys)

    def scan(self, start, stop):
        self.looks.append(start[:1])
        return super().scan(start, stop)


def with_backlog(*commands, **limits):
    """Return a reopened queue with a backlog in a tube, and its store."""
    queue = Queue(MemoryStore(), Limits())
    tube = CreateTube("mail", TubeKind.UTUBETTL, TubeOptions())
    plain = CreateTube("plain", TubeKind.FIFOTTL, TubeOptions())
    queue.apply(1, 1_000, [Startup(1, 0, "feed", 1), tube, plain, *commands])
    store = CountingStore()
    store.write(queue.collect_writes())
    queue = Queue(store, Limits(**limits))
    store.asked = 0
    store.looks.clear()
    return queue, store


def tasks(count, **wishes):
    return [NewTask(b"body", 4, **wishes) for _ in range(count)]


def resident(queue, tube):
    return len(queue._state.tubes[tube].tasks)


def read_all_ahead(queue):
    """Read all tasks of ``queue.ahead``, which the next entries would read step by step."""
    queue.look_ahead()
    while queue.ahead:
        queue.read_ahead()


def test_tasks_are_read_ahead_in_steps(monkeypatch):
    monkeypatch.setattr(queue_module, "AHEAD_STEP", 10)
    queue, store = with_backlog(Put("plain", tasks(TASKS)), read_tasks_max=1, ahead_tasks_max=30)
    queue.apply(2, 2_000, [Take(["plain"])])
    store.write(queue.collect_writes())
    queue.look_ahead()
    begun = resident(queue, "plain")
    assert begun < 10
    queue.read_ahead()
    assert 10 <= resident(queue, "plain") - begun <= 11
    store.write(queue.collect_writes())
    assert not queue.ahead, "the store may have other tasks now"


def test_a_take_reads_the_next_tasks_in_one_read():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), read_tasks_max=10)
    (result,) = queue.apply(2, 2_000, [Take(["plain"], tasks_max=8)])
    assert [task.id for task in result.tasks] == list(range(1, 9))
    assert store.asked == 0
    assert 8 < resident(queue, "plain") <= 20


def test_a_tube_in_use_is_read_ahead_and_takes_read_nothing():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), read_tasks_max=1, ahead_tasks_max=30)
    queue.apply(2, 2_000, [Take(["plain"])])
    store.write(queue.collect_writes())
    read_all_ahead(queue)
    assert resident(queue, "plain") >= 30
    store.pairs = {key: value for key, value in store.pairs.items() if key[:1] != b"t"}
    (result,) = queue.apply(3, 3_000, [Take(["plain"], tasks_max=20)])
    assert len(result.tasks) == 20


def test_without_free_memory_only_requested_tasks_are_read():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), resident_bytes_max=3, read_tasks_max=10)
    queue.apply(2, 2_000, [Take(["plain"])])
    queue.apply(3, 3_000, [Take(["plain"], tasks_max=30)])
    assert resident(queue, "plain") == 31
    store.write(queue.collect_writes())
    read_all_ahead(queue)
    assert resident(queue, "plain") == 31


def test_deadlines_due_at_the_same_time_are_read_together():
    queue, store = with_backlog(Put("plain", tasks(TASKS, delay_ms=500)))
    queue.apply(2, 5_000, [])
    assert store.asked == 0
    assert queue.ready_count("plain") == TASKS


def test_tasks_that_are_far_apart_are_read_by_their_keys():
    far = [task for number in range(TASKS) for task in tasks(1, priority=-(number % 2))]
    queue, store = with_backlog(Put("plain", far), read_tasks_max=4)
    (result,) = queue.apply(2, 2_000, [Take(["plain"], tasks_max=TASKS // 2)])
    assert [task.id for task in result.tasks] == list(range(2, TASKS + 1, 2))
    assert store.asked == 0


def test_a_take_of_many_tasks_scans_the_order_once():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), read_tasks_max=2)
    (result,) = queue.apply(2, 2_000, [Take(["plain"], tasks_max=TASKS)])
    assert len(result.tasks) == TASKS
    assert store.asked == 0
    assert store.looks.count(TASK) == 1


def test_the_read_ahead_is_shared_by_the_sub_queues_in_use():
    names = [f"queue{number}" for number in range(4)]
    puts = [Put("mail", tasks(TASKS, subqueue=name)) for name in names]
    queue, store = with_backlog(*puts, ahead_tasks_max=TASKS, subqueue_entries_max=2)
    queue.apply(2, 2_000, [Take(["mail"], tasks_max=4)])
    store.write(queue.collect_writes())
    read_all_ahead(queue)
    of_queue = [0] * 4
    for task_id in queue._state.tubes["mail"].tasks:
        of_queue[(task_id - 1) // TASKS] += 1
    assert min(of_queue) >= TASKS // 4


def test_deadlines_that_are_far_apart_are_read_some_at_a_time():
    delays = [500 + 37 * number % TASKS * 100 for number in range(TASKS)]
    delayed = [task for delay in delays for task in tasks(1, delay_ms=delay)]
    queue, store = with_backlog(Put("plain", delayed), read_tasks_max=10)
    for step in range(TASKS):
        queue.apply(2 + step, 1_500 + step * 100, [])
        assert queue.ready_count("plain") == step + 1
    assert store.asked == 0
    assert store.looks.count(TASK) <= TASKS // 10


def test_an_emptied_tube_is_not_read():
    queue, store = with_backlog(Put("plain", tasks(TASKS)), steps_beside_max=1, read_tasks_max=1)
    queue.apply(2, 2_000, [Take(["plain"])])
    store.write(queue.collect_writes())
    queue.apply(3, 3_000, [TruncateTube("plain")])
    ((emptied, _),) = queue._state.removals.values()
    before = len(emptied.tasks)
    read_all_ahead(queue)
    assert len(emptied.tasks) == before


def test_a_stored_task_that_has_changed_is_listed_once_in_each_direction():
    queue, _ = with_backlog(Put("plain", tasks(3)))
    queue.apply(2, 2_000, [Take(["plain"]), Put("plain", tasks(2))])
    state = queue._state
    plain = state.tubes["plain"]
    assert [task.id for task in state.tasks(plain)] == [1, 2, 3, 4, 5]
    assert [task.id for task in state.tasks(plain, 1)] == [2, 3, 4, 5]
    assert [task.id for task in state.tasks_back(plain, 5)] == [5, 4, 3, 2, 1]
    assert [task.state for task in state.tasks(plain)][:2] == [TAKEN, READY]
