"""The end or burial of a task updates its dependents, in limited steps and across restarts."""

from itertools import pairwise

import pytest

from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    OnConflict,
    TaskReference,
)
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.admin import Restart, Switch
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Ack, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from tests.service.queue.memory_store import MemoryStore

STEP = 4


class Stage:
    """A queue with one tube, which updates the dependents of an ended task in steps of ``STEP``."""

    def __init__(self):
        self.store = MemoryStore()
        self.limits = Limits(steps_alone_max=STEP, steps_beside_max=STEP, steps_max=STEP)
        self.queue = Queue(self.store, self.limits)
        self.index = 0
        self.do(Startup(1, 0, "feed", 1), CreateTube("t", TubeKind.FIFOTTL, TubeOptions()))

    def do(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, 1_000, commands)

    def reopen(self):
        """Reopen the queue from the content of the store."""
        self.store.write(self.queue.collect_writes())
        self.queue = Queue(self.store, self.limits)

    def put(self, *after, tasks=1):
        on = tuple(TaskReference("t", one) for one in after)
        new = NewTask(b"x", 1, dependencies=Dependencies(on) if on else None)
        (result,) = self.do(Put("t", [new] * tasks))
        return list(result.ids)

    def states(self):
        return {task.id: task.state for task in self.queue.list_tasks("t", (), 0, 1_000)}

    def held(self):
        return [*self.states().values()].count(State.HELD)

    @property
    def index_keys(self):
        return list(self.queue._state.dependents.members.keys())


@pytest.fixture
def stage():
    return Stage()


@pytest.mark.parametrize("reopens", [False, True])
def test_a_removed_task_leaves_the_index(stage, reopens):
    stage.put(tasks=2)
    (waiting,) = stage.put(1, 2)
    if reopens:
        stage.reopen()
    assert len(stage.index_keys) == 2
    stage.do(Delete("t", ByIds([waiting])))
    assert stage.index_keys == []
    stage.reopen()
    assert stage.index_keys == []


def test_dependents_are_updated_in_steps_even_after_a_restart(stage):
    stage.put()
    waiting = stage.put(1, tasks=2 * STEP + 1)
    (taken,) = stage.do(Take(["t"]))
    stage.do(Settle([Ack([taken.tasks[0].token])]))
    for ready in (STEP + 1, 2 * STEP + 1):  # one more at the end of each entry
        assert (stage.queue.next_deadline_ms() is not None) is (ready < len(waiting))
        states = stage.states()
        assert [one for one in waiting if states[one] is State.READY] == waiting[:ready]
        stage.reopen()
        stage.do()
    assert not stage.queue._state.dependents.has_endings
    assert stage.queue.next_deadline_ms() is None
    assert stage.index_keys == []


def test_all_ends_of_an_entry_share_its_steps(stage):
    """Two tasks end in one entry, and their dependents end too; one more step at its end."""
    stage.put(tasks=2)
    stage.put(1, tasks=STEP - 1)
    stage.put(2, tasks=STEP - 1)
    stage.do(Delete("t", ByIds([1])), Delete("t", ByIds([2])))
    assert len(stage.states()) == STEP - 3
    stage.do()
    assert stage.states() == {}


@pytest.mark.parametrize("how", [Delete, Bury])
def test_a_failure_goes_down_a_long_chain_step_by_step(stage, how):
    links = [NewTask(b"x", 1, dependencies=Dependencies((ItemReference(n),))) for n in range(10)]
    stage.do(Put("t", [NewTask(b"x", 1), *links]))
    stage.do(how("t", ByIds([1])))
    left = [stage.held()]
    while stage.queue.next_deadline_ms() is not None:
        stage.reopen()
        stage.do()
        left.append(stage.held())
    assert left[0] > 0
    assert left[-1] == 0
    assert stage.states() == ({1: State.BURIED} if how is Bury else {})
    assert all(before - after <= STEP for before, after in pairwise(left))


def test_a_restarted_task_has_its_own_dependents(stage):
    """New dependents wait for the second end while those of the first end are updated."""
    stage.put()
    stage.put(1, tasks=4 * STEP)
    stage.do(Switch("t", ByIds([1]), State.DONE), Restart("t", ByIds([1])))
    (later,) = stage.put(1)
    for _ in range(5):
        stage.do()
    states = stage.states()
    assert states.pop(later) is State.HELD
    assert set(states.values()) == {State.READY}
    stage.do(Delete("t", ByIds([1])))
    assert later not in stage.states()


def test_a_kicked_task_has_its_own_dependents(stage):
    """The dependents of the burial end; dependents that are put after the kick wait."""
    stage.put()
    stage.put(1, tasks=4 * STEP)
    stage.do(Bury("t", ByIds([1])), Kick("t", selector=ByIds([1])))
    (later,) = stage.put(1)
    for _ in range(5):
        stage.do()
    assert stage.states() == {1: State.READY, later: State.HELD}
    (taken,) = stage.do(Take(["t"]))
    stage.do(Settle([Ack([taken.tasks[0].token])]))
    assert stage.states() == {later: State.READY}


def test_dependents_of_a_buried_task_end_in_steps_too(stage):
    stage.put()
    stage.do(Bury("t", ByIds([1])))
    stage.put(1, tasks=2 * STEP + 1)
    held = [stage.held()]
    while stage.queue.next_deadline_ms() is not None:
        stage.reopen()
        stage.do()
        held.append(stage.held())
    assert held == [STEP + 1, 1, 0]
    assert stage.states() == {1: State.BURIED}
    assert stage.index_keys == []


def test_many_buried_dependencies_cost_one_step(stage):
    stage.put(tasks=STEP)
    ids = [*range(1, STEP + 1)]
    stage.do(Bury("t", ByIds(ids)))
    stage.put(*ids, tasks=STEP)
    assert stage.held() == 0
    assert stage.states() == dict.fromkeys(ids, State.BURIED)


@pytest.mark.parametrize(
    ("conflict", "held"), [(OnConflict.REPLACE_IF_WAITING, 1), (OnConflict.RETURN_EXISTING, 0)]
)
def test_a_buried_task_that_the_same_put_replaces_is_waited_for(stage, conflict, held):
    named = NewTask(b"x", 1, unique_key=("k",))
    stage.do(Put("t", [named]), Bury("t", ByIds([1])))
    again = NewTask(b"y", 1, unique_key=("k",), on_conflict=conflict)
    after = NewTask(b"x", 1, dependencies=Dependencies((ItemReference(0),)))
    (result,) = stage.do(Put("t", [again, after]))
    assert result.ids == [1, 2]
    assert stage.held() == held
    assert stage.states()[1] is (State.READY if held else State.BURIED)


def test_a_watched_dependent_reports_its_outcome(stage):
    stage.put()
    (waiting,) = stage.put(1)
    watch = stage.queue.watch
    watch.add(stage.queue.tube_number("t"), waiting)
    stage.do(Delete("t", ByIds([1])))
    (note,) = watch.fetch()
    assert note.outcome is TaskOutcome.DEPENDENCY_FAILED
    assert note.task.extras.failure.message == "t/1: DELETED"
