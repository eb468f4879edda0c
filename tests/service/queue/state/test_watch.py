"""Watches report all watched tasks and no other tasks, and each end once."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import Failure, TaskProgress
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import Ack, Release, Settle, Touch
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

ONCE = RetryPolicy(attempts_max=1, exhausted=Exhausted.REMOVE)


class Node:
    """A queue with two tubes and three tasks in the first tube."""

    def __init__(self):
        self.queue = Queue(MemoryStore(), Limits())
        self.index = 0
        tubes = [CreateTube(name, TubeKind.FIFOTTL, TubeOptions()) for name in ("mail", "news")]
        self.do(Startup(1, 0, "feed", 1), *tubes)
        self.put(3)

    def do(self, *commands, now_ms=1_000):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def put(self, count, **wishes):
        self.do(Put("mail", [NewTask(b"x", 1, **wishes) for _ in range(count)]))

    def want(self, *task_ids):
        for task_id in task_ids:
            self.queue.watch.add(self.queue.tube_number("mail"), task_id)

    def reported(self):
        notes = self.queue.watch.fetch()
        assert all(note.tube == 1 and note.task.body == b"x" for note in notes)
        return [(note.task.id, note.outcome) for note in notes]


@pytest.fixture
def node():
    return Node()


def test_only_watched_tasks_are_reported_and_only_once(node):
    node.want(2, 2)
    node.do(Delete("mail", ByIds([1, 2, 3])))
    assert node.reported() == [(2, TaskOutcome.DELETED)]
    assert node.reported() == []


def test_removed_watches_report_nothing_and_leave_nothing(node):
    watch = node.queue.watch
    node.want(1, 2)
    watch.discard(1, 1)
    assert set(watch.tubes) == {1}
    node.do(Delete("mail", ByIds([1])))
    assert node.reported() == []
    watch.discard(1, 2)
    watch.discard(1, 2)
    watch.discard(9, 2)
    assert not watch.tubes


def test_all_tasks_from_an_id_on_are_reported_while_a_put_is_in_flight(node):
    watch = node.queue.watch
    watch.add_floor(1, 3)
    watch.add_floor(1, 3)
    node.put(2)
    node.do(Delete("mail", ByIds([1, 2, 3, 4])))
    assert node.reported() == [(3, TaskOutcome.DELETED), (4, TaskOutcome.DELETED)]
    watch.discard_floor(1, 4)
    watch.discard_floor(9, 3)
    watch.discard_floor(1, 3)
    node.do(Delete("mail", ByIds([5])))
    assert node.reported() == [(5, TaskOutcome.DELETED)], "the other put still waits"
    watch.discard_floor(1, 3)
    assert not watch.tubes


def test_every_end_and_burial_has_its_outcome(node):
    node.put(1, ttl_ms=5)
    node.put(1, retry=ONCE)
    node.want(1, 2, 3, 4, 5)
    node.do(Take(["mail"], tasks_max=9))
    node.do(Settle([Ack([1])]), Settle([Release([2])]), Bury("mail", ByIds([2])))
    assert node.reported() == [(1, TaskOutcome.PROCESSED), (2, TaskOutcome.BURIED_OUT)]
    node.do(Settle([Release([4]), Release([5], failure=Failure("broken"))]), now_ms=1_001)
    assert node.reported() == [(5, TaskOutcome.FAILED)]
    node.do(now_ms=1_005)
    assert node.reported() == [(4, TaskOutcome.EXPIRED)]


def test_an_acknowledged_task_shows_its_result(node):
    node.want(1)
    node.do(Take(["mail"]), Settle([Ack([1], b"42", "text/plain")]))
    (note,) = node.queue.watch.fetch()
    extras = note.task.extras
    assert (extras.outcome, extras.result) == (TaskOutcome.PROCESSED, b"42")


def test_progress_is_reported_without_an_outcome(node):
    node.want(1)
    node.do(Take(["mail"]), Settle([Touch([1], 5)]))
    assert node.reported() == []
    node.do(Settle([Touch([1], 5, progress=TaskProgress(50, "half"))]))
    (note,) = node.queue.watch.fetch()
    assert (note.outcome, note.task.extras.outcome) == (TaskOutcome.NONE, TaskOutcome.NONE)
    assert note.task.extras.progress.note == "half"
    assert note.moved_to is None


def test_a_moved_task_is_reported_with_its_new_position(node):
    node.want(1, 2)
    node.do(Take(["mail"]), Settle([Release([1], move_to="news")]))
    (note,) = node.queue.watch.fetch()
    assert (note.outcome, note.moved_to) == (TaskOutcome.NONE, ("news", 1))


@pytest.mark.parametrize("command", [TruncateTube("mail"), DropTube("mail")])
def test_the_tasks_of_an_emptied_tube_are_reported_when_they_are_removed(node, command):
    watch = node.queue.watch
    node.put(1_000)
    node.want(1, 1_003)
    watch.add_floor(1, 1_003)
    node.do(command)
    assert node.queue.tube_name(1) is None
    assert node.queue.has_news
    assert (watch.fetch_emptied(), watch.fetch_emptied()) == ([1], [])
    assert node.reported() == [(1, TaskOutcome.DELETED)]
    assert node.queue.task_in_cleanup(1, 1) is None
    assert node.queue.task_in_cleanup(1, 1_003).body == b"x"
    while node.queue.next_deadline_ms() is not None:
        assert node.reported() == []
        node.do()
    assert node.reported() == [(1_003, TaskOutcome.DELETED)]
    assert node.queue.task_in_cleanup(1, 1_003) is None
    assert sorted(watch.unwatch_each(1)) == [1, 1_003]
    watch.discard_floor(1, 1_003)
    assert not watch.tubes


def test_a_tube_without_watches_is_not_reported_as_emptied(node):
    node.do(DropTube("mail"))
    assert node.queue.watch.fetch_emptied() == []


def test_the_end_of_a_watched_session_is_reported_once(node):
    watch = node.queue.watch
    sessions = [OpenSession(name, name, 10) for name in ("anna", "bert", "carl")]
    node.do(*sessions)
    watch.add_session("anna")
    watch.add_session("carl")
    node.do(CloseSession("anna", uncounted=True), CloseSession("bert"))
    assert watch.fetch_sessions() == [("anna", True)]
    node.do(now_ms=1_010)
    assert watch.fetch_sessions() == [("carl", False)]
    node.do(OpenSession("anna", "anna", 10), CloseSession("anna"), now_ms=1_010)
    assert watch.fetch_sessions() == []
