"""When more deadlines are due than one entry fires, no expired task is taken."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.memory_store import MemoryStore


class Node:
    def __init__(self, **limits):
        self.store = MemoryStore()
        self.queue = Queue(self.store, Limits(**limits))
        self.index = 0
        tubes = [CreateTube(name, TubeKind.FIFOTTL, TubeOptions()) for name in ("mail", "old")]
        self.do(0, Startup(1, 0, "feed", 1), *tubes)

    def do(self, now_ms, *commands):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def put(self, count, tube="mail", **wishes):
        self.do(0, Put(tube, [NewTask(b"", 0, **wishes) for _ in range(count)]))

    def counts(self, tube="mail"):
        (statistics,) = self.queue.statistics([tube])
        return {state: count for state, count in statistics.states.items() if count}


@pytest.mark.parametrize(
    "take",
    [
        Take(["mail"], tasks_max=9),
        Take(["mail", "old"], tasks_max=9),
        Take(["mail", "old"], tasks_max=9, weights=(2, 1)),
        Take(["mail"], tasks_max=9, types=("a",)),
    ],
    ids=["one tube", "two tubes", "by weight", "by type"],
)
def test_an_expired_task_is_not_taken_although_its_deadline_has_not_fired(take):
    node = Node(steps_alone_max=1, steps_beside_max=1)
    node.put(3, ttl_ms=10, type="a")
    node.put(1, type="a")
    (result,) = node.do(10, take)
    assert [task.id for task in result.tasks] == [4]
    assert node.counts() == {State.TAKEN: 1}


def test_an_expired_task_cannot_be_taken_by_id():
    node = Node(steps_alone_max=1, steps_beside_max=1)
    node.put(3, ttl_ms=10)
    (refusal,) = node.do(10, Take(["mail"], task_id=3))
    assert refusal.reason.name == "TASK_NOT_FOUND"
    assert node.counts() == {State.READY: 1}


def test_an_entry_fires_a_limited_number_and_the_next_entry_the_rest():
    node = Node(steps_alone_max=2, steps_beside_max=2)
    node.put(5, delay_ms=10)
    for ready in (2, 4, 5):
        assert node.queue.next_deadline_ms() == 10
        node.do(10)
        assert node.counts()[State.READY] == ready
    assert node.queue.next_deadline_ms() is None


def test_the_end_of_a_session_takes_a_step_for_each_task_that_it_held():
    node = Node(steps_alone_max=3, steps_beside_max=3)
    node.put(2)
    node.do(0, OpenSession("anna", "", 10), Take(["mail"], "anna", tasks_max=2))
    node.put(2, delay_ms=11)
    node.do(11)
    assert node.counts() == {State.READY: 2, State.DELAYED: 2}
    node.do(11)
    assert node.counts() == {State.READY: 4}


def test_a_session_returns_its_leases_in_steps():
    node = Node(steps_alone_max=2, steps_beside_max=2)
    node.put(5)
    node.do(0, OpenSession("anna", "", 10), Take(["mail"], "anna", tasks_max=5))
    for ready in (2, 4, 5):  # the deadline of the session is a step too
        assert node.queue.next_deadline_ms() == 10
        node.do(10)
        assert node.counts()[State.READY] == ready
        assert node.queue.session("anna") is None
    assert node.queue.next_deadline_ms() is None


def test_deadlines_of_a_dropped_tube_use_a_small_part_of_the_limit():
    node = Node(steps_alone_max=1, steps_beside_max=1)
    node.put(20, "old", delay_ms=10)
    node.put(1, delay_ms=11)
    node.do(0, DropTube("old"))
    node.do(11)
    assert node.counts() == {State.DELAYED: 1}, "16 deadlines are examined for each that may fire"
    node.do(11)
    assert node.counts() == {State.READY: 1}


def test_removed_tasks_leave_no_keys():
    node = Node()
    node.do(0, Put("mail", [NewTask(b"x", 1, unique_key=("a", "b"), ttl_ms=50, delay_ms=5)] * 1))
    node.put(1, unique_key=("c",))
    node.store.write(node.queue.collect_writes())
    before = len(node.store.pairs)
    node.do(1, Delete("mail", ByIds([1, 2])))
    node.store.write(node.queue.collect_writes())
    assert node.queue.next_deadline_ms() is None
    assert not any(key[:1] in b"rbldky" for key in node.store.pairs)
    assert len(node.store.pairs) < before


def test_a_new_time_to_live_of_a_task_whose_delay_is_over_is_not_negative():
    node = Node(steps_alone_max=1, steps_beside_max=1)
    node.put(3, delay_ms=10)
    node.do(500, UpdateTasks("mail", ByIds((3,)), TaskUpdate(ttl_ms=20)))
    (task,) = node.queue.get_tasks("mail", [3])
    assert (task.state, task.ttl_ms, task.expire_at_ms) == (State.DELAYED, 20, 520)
    node.store.write(node.queue.collect_writes())  # a negative duration has no record
