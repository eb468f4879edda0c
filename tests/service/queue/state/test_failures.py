"""Records of failed tasks that were removed: their number and their age, also after a restart."""

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

LIMITS = Limits(failures_max=3, failure_retention_ms=100)
ONCE = TubeOptions(retry=RetryPolicy(1, exhausted=Exhausted.REMOVE))


class Node:
    def __init__(self):
        self.store = MemoryStore()
        self.queue = Queue(self.store, LIMITS)
        self.index = 0
        self.do(0, Startup(1, 0, "feed", 1), CreateTube("mail", TubeKind.FIFO, ONCE))

    def do(self, now_ms, *commands):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def fail(self, now_ms, *key):
        _, taken = self.do(now_ms, Put("mail", [NewTask(b"", 0, unique_key=key)]), Take(["mail"]))
        self.do(now_ms, Settle([Release([taken.tasks[0].token], failure=Failure("Broken"))]))

    def known(self):
        views = self.queue.failed_tasks("mail", ByIds(list(range(1, 9))))
        return [view.id for view in views if view is not None]

    def reopen(self):
        digest = self.queue.digest()
        self.store.write(self.queue.collect_writes())
        self.queue = Queue(self.store, LIMITS)
        assert self.queue.digest() == digest


def test_the_oldest_records_are_removed_at_the_limit():
    node = Node()
    for number in range(5):
        node.fail(number, str(number % 2))
        node.reopen()
    assert node.known() == [3, 4, 5]
    failures, tube = node.queue._state.failures, node.queue._state.tubes.by_number[1]
    assert failures.of_key(tube, ("0",)).id == 5
    assert failures.of_key(tube, ("1",)).id == 4
    node.fail(9)
    node.fail(9)
    node.reopen()
    assert failures.of_key(tube, ("1",)) is None, "the record was removed"
    assert sum(key[:1] == b"e" for key in node.store.pairs) == 3 + 3 + 1


def test_records_are_removed_after_their_time_and_leave_the_store():
    node = Node()
    node.fail(10, "a")
    node.fail(20)
    node.do(109)
    assert node.known() == [1, 2]
    node.reopen()
    node.do(110)
    assert node.known() == [2]
    node.do(120)
    node.reopen()
    assert node.known() == []
    assert not any(key[:1] == b"e" for key in node.store.pairs)
    node.fail(130, "a")
    assert node.known() == [3]
