"""Counters: what they say of the present leadership, and after a restart."""

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
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


def test_calls_are_counted_since_the_leader_began_as_well():
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
