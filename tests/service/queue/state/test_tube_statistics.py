"""Counters of tubes and their totals are correct, also after a restart."""

from __future__ import annotations

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

PUT = EventKind.PUT


def counts(queue):
    (statistics,) = queue.statistics(["mail"])
    return (
        statistics.calls.by_kind[PUT],
        statistics.fresh.by_kind[PUT],
        queue.total_statistics().fresh.by_kind[PUT],
    )


def test_calls_are_also_counted_since_the_start_of_the_leadership():
    store = MemoryStore()
    queue = Queue(store, Limits())
    put = Put("mail", [NewTask(b"", 0)])
    mail = CreateTube("mail", TubeKind.FIFO, TubeOptions())
    queue.apply(1, 1, [Startup(1, 0, "feed", 1), mail, put, put])
    assert counts(queue) == (2, 2, 2)
    queue.apply(2, 2, [Startup(2, 0), put])
    assert counts(queue) == (3, 1, 1)
    queue.apply(3, 3, [TruncateTube("mail"), put])
    assert counts(queue) == (4, 2, 2)
    digest = queue.digest()
    store.write(queue.collect_writes())
    reopened = Queue(store, Limits())
    assert reopened.digest() == digest
    assert counts(reopened) == (4, 0, 0), "a node counts from its own start"


PLAIN = NewTask(b"x", 1)


class Node:
    """A queue with three tubes; each entry is one second later than the previous entry."""

    def __init__(self):
        self.store = MemoryStore()
        self.queue = Queue(self.store, Limits())
        self.index = 0
        self.apply(
            Startup(1, 15_000, "feed", 1),
            OpenSession("s", ttr_ms=1_000_000),
            *(CreateTube(name, TubeKind.FIFO, TubeOptions()) for name in "abc"),
        )

    def apply(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, self.index * 1_000, commands)

    def total(self):
        total = self.queue.total_statistics()
        assert total == self.queue.total_statistics(self.queue.tube_names())
        return total

    def take_and_ack(self, tube):
        (result,) = self.apply(Take([tube], "s"))
        self.apply(Settle([Ack([result.tasks[0].token])]))


def test_the_oldest_ready_task_of_all_tubes_is_known_as_tubes_fill_and_empty():
    node = Node()
    assert node.total().oldest_ready_ms == 0
    for tube in "abc":
        node.apply(Put(tube, [PLAIN]))
    assert node.total().oldest_ready_ms == 2_000
    node.apply(Put("a", [PLAIN]))
    node.take_and_ack("a")
    assert node.total().oldest_ready_ms == 3_000, "tube b has the oldest ready task"
    node.apply(DropTube("b"))
    assert node.total().oldest_ready_ms == 4_000, "tube c has the oldest ready task"
    node.apply(TruncateTube("c"))
    assert node.total().oldest_ready_ms == 5_000, "a task that was put later"
    node.take_and_ack("a")
    assert node.total().oldest_ready_ms == 0


def test_a_reopened_queue_has_the_same_totals():
    node = Node()
    node.apply(Put("a", [PLAIN, PLAIN]), Put("b", [PLAIN]))
    node.apply(Take(["a"], "s"))
    before = node.total()
    node.store.write(list(node.queue.collect_writes()))
    node.queue = Queue(node.store, Limits())
    after = node.total()
    assert after.states == before.states
    assert after.states[State.READY] == 2
    assert (after.calls, after.transitions) == (before.calls, before.transitions)
    assert after.oldest_ready_ms == before.oldest_ready_ms == 2_000
    node.apply(DropTube("b"))
    assert node.total().states[State.READY] == 1
