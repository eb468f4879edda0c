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
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import BuryTaken, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
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

    def put(self, count, tube="mail", now_ms=None, **wishes):
        now_ms = self.queue.now_ms if now_ms is None else now_ms
        self.do(now_ms, Put(tube, [NewTask(b"", 0, **wishes) for _ in range(count)]))

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
    node = Node(steps_alone_max=1, steps_beside_max=1, steps_max=1)
    node.put(3, ttl_ms=10, type="a")
    node.put(1, type="a")
    (result,) = node.do(10, take)
    assert [task.id for task in result.tasks] == [4]
    assert node.counts() == {State.TAKEN: 1}


def test_an_expired_task_cannot_be_taken_by_id():
    node = Node(steps_alone_max=1, steps_beside_max=1, steps_max=1)
    node.put(3, ttl_ms=10)
    (refusal,) = node.do(10, Take(["mail"], task_id=3))
    assert refusal.reason.name == "TASK_NOT_FOUND"
    assert node.counts() == {State.READY: 1}


def test_an_entry_fires_a_limited_number_and_the_next_entry_the_rest():
    node = Node(steps_alone_max=2, steps_beside_max=2, steps_max=2)
    node.put(5, delay_ms=10)
    for ready in (2, 4, 5):
        assert node.queue.next_deadline_ms() == 10
        node.do(10)
        assert node.counts()[State.READY] == ready
    assert node.queue.next_deadline_ms() is None


def test_the_end_of_a_session_takes_a_step_for_each_task_that_it_held():
    node = Node(steps_alone_max=3, steps_beside_max=3, steps_max=3)
    node.put(2)
    node.do(0, OpenSession("anna", "", 10), Take(["mail"], "anna", tasks_max=2))
    node.put(2, delay_ms=11)
    node.do(11)
    assert node.counts() == {State.READY: 2, State.DELAYED: 2}
    node.do(11)
    assert node.counts() == {State.READY: 4}


def test_a_session_returns_its_leases_in_steps():
    node = Node(steps_alone_max=2, steps_beside_max=2, steps_max=2)
    node.put(5)
    node.do(0, OpenSession("anna", "", 10), Take(["mail"], "anna", tasks_max=5))
    for ready in (2, 4, 5):  # the deadline of the session is a step too
        assert node.queue.next_deadline_ms() == 10
        node.do(10)
        assert node.counts()[State.READY] == ready
        assert node.queue.session("anna") is None
    assert node.queue.next_deadline_ms() is None


@pytest.mark.parametrize("is_uncounted", [True, False])
def test_a_lease_that_waits_for_its_return_does_not_expire(is_uncounted):
    node = Node(steps_alone_max=2, steps_beside_max=2, steps_max=2)
    node.put(9)
    node.do(0, OpenSession("anna", "", 99), Take(["mail"], "anna", tasks_max=9, ttr_ms=5))
    node.do(1, CloseSession("anna", uncounted=is_uncounted))
    while node.queue.next_deadline_ms() is not None:
        node.do(5)
    tasks = node.queue.get_tasks("mail", range(1, 10))
    assert {task.attempt for task in tasks} == {0 if is_uncounted else 1}
    failures = {task.extras.failure and task.extras.failure.type for task in tasks}
    assert failures == {None if is_uncounted else "SESSION_ENDED"}


def test_an_entry_with_many_events_has_as_many_steps():
    """Otherwise tasks would become due faster than they become ready, under a steady load."""
    node = Node(steps_beside_max=5)
    for entry in range(9):
        node.do(entry, Put("mail", [NewTask(b"", 0, delay_ms=1)] * 100))
        assert node.counts()[State.DELAYED] <= 110


def test_buried_tasks_above_the_limit_are_removed_although_many_deadlines_are_due():
    node = Node(steps_beside_max=8, steps_max=8)
    node.do(0, UpdateTube("mail", TubeOptions(buried_max=1), ["buried_max"]))
    node.put(40, delay_ms=5)
    node.put(8)
    (ready,) = node.do(1, Take(["mail"], tasks_max=8))
    buried = [BuryTaken([task.token]) for task in ready.tasks]
    node.do(5, Settle(buried))
    counts = [node.counts()[State.BURIED]]
    for _ in range(3):
        node.put(1, now_ms=5)
        counts.append(node.counts()[State.BURIED])
    assert counts == [7, 6, 5, 4]


def test_a_restarted_replica_looks_at_no_deadline_of_a_removed_tube_again():
    nodes = [Node(steps_alone_max=1, steps_beside_max=1, steps_max=1) for _ in range(2)]
    for node in nodes:
        node.put(40, "old", delay_ms=10)
        node.do(0, DropTube("old"))
        node.put(1, delay_ms=11)
        node.do(10)
        node.store.write(node.queue.collect_writes())
    nodes[0].queue = Queue(nodes[0].store, nodes[0].queue._state.limits)
    for now_ms in (11, 11):
        for node in nodes:
            node.do(now_ms)
        assert nodes[0].queue.digest() == nodes[1].queue.digest()


def test_deadlines_of_a_dropped_tube_use_a_small_part_of_the_limit():
    node = Node(steps_alone_max=1, steps_beside_max=1, steps_max=1)
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
    node = Node(steps_alone_max=1, steps_beside_max=1, steps_max=1)
    node.put(3, delay_ms=10)
    node.do(500, UpdateTasks("mail", ByIds((3,)), TaskUpdate(ttl_ms=20)))
    (task,) = node.queue.get_tasks("mail", [3])
    assert (task.state, task.ttl_ms, task.expire_at_ms) == (State.DELAYED, 20, 520)
    node.store.write(node.queue.collect_writes())  # a negative duration has no record
