"""The sampler keeps its tubes when a snapshot replaces the queue."""

from taskraft_service.machine import tube_sampler
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.machine.tube_sampler import FINE_MS, TubeSampler
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore


class Node:
    """A node with one sampler, whose queue can be replaced."""

    def __init__(self):
        self.begin()
        self.sampler = TubeSampler(QueueLocator(lambda: self.queue), lambda: 0)

    def begin(self):
        """Begin with a new queue that has the tubes a and z."""
        self.store, self.index = MemoryStore(), 0
        self.queue = Queue(self.store, Limits())
        self.apply(Startup(1, 0, "f", 1))
        self.apply(*(CreateTube(name, TubeKind.FIFOTTL, TubeOptions()) for name in "az"))

    def apply(self, *commands):
        self.index += 1
        self.queue.apply(self.index, self.index, commands)
        self.store.write(self.queue.collect_writes())

    def put(self, tube, count):
        self.apply(Put(tube, [NewTask(b"x", 1)] * count))

    def sample(self):
        for _ in self.sampler.sample():
            pass

    def column(self, tube, field):
        ring = self.sampler.rings[FINE_MS]
        return dict(ring.columns(tube, ring.newest(9)))[field]


def test_a_snapshot_keeps_the_sampled_tubes_and_leaves_a_gap_of_counts(monkeypatch):
    monkeypatch.setattr(tube_sampler, "TUBES_MAX", 1)
    node = Node()
    node.put("a", 1)
    node.sample()
    node.put("a", 2)
    node.sample()
    node.begin()
    node.put("z", 5)
    node.put("a", 9)
    node.sample()
    assert node.sampler.sampled_tubes() == ["a"]
    assert node.column("a", "put") == [-1, 2, -1]
    assert node.column("a", "ready") == [1, 3, 9]
    node.put("a", 1)
    node.sample()
    assert node.column("a", "put") == [-1, 2, -1, 1]
