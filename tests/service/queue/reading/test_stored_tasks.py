"""The tasks of a store that no longer changes."""

from taskraft_service.queue.limits import Limits
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.reading import stored_tasks
from taskraft_service.queue.reading.stored_tasks import StoredTasks, StoredTube
from tests.service.queue.memory_store import MemoryStore
from tests.service.queue.scenario import rewritten

STEPS = """
create mail
create none
create gone
put mail body=a,b,c
put gone body=a
delete mail ids=1
delete gone ids=1
----
"""


class WatchedStore(MemoryStore):
    """A store in memory that remembers where searches for records began."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.begun = set()

    def scan(self, start, stop):
        self.begun.add(start)
        return super().scan(start, stop)


def test_only_tubes_with_tasks_are_searched(monkeypatch):
    store = MemoryStore()
    queue = Queue(store, Limits())
    rewritten(STEPS, queue, lambda one: one)
    store.write(queue.collect_writes())
    watched = WatchedStore(store.pairs)
    stored = StoredTasks(watched, Limits())
    monkeypatch.setattr(stored_tasks, "read_tube", None)  # a whole tube has many objects
    for _ in stored.find_tubes():
        watched.begun.clear()  # the scan of the list of the tubes has begun
    assert stored.tubes == [StoredTube("mail", 2, 3, 2)]
    assert len(watched.begun) == 1
