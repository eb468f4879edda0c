"""Tubes whose order is decided by an installed driver."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_driver import (
    MEMORY_BYTES_MAX,
    RANK_MAX,
    Placement,
    TubeDriverMissing,
)
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.kick_bury_delete import Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Reject, Release, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.quarantines import QUARANTINES_MAX
from taskraft_service.queue.transitions.updating import TaskUpdate
from taskraft_service.storage.memory import MemoryStore

KIND_UNSUITABLE = Reason.KIND_UNSUITABLE
SMALL = Limits(head_entries_max=2, resident_bytes_max=1)


class Newest:
    """Last in, first out; failed tasks come last. The memory is the number of arrivals."""

    name = "newest"
    version = 3

    def refuse(self, arrival):
        return "too large" if arrival.payload_bytes > 10 else ""

    def place(self, arrival, memory):
        come = int(memory or b"0") + 1
        rank = arrival.attempt * 1_000 - come
        return Placement(rank, b"%d" % come)


class Stage:
    def __init__(self, driver=None, store=None):
        self.driver = driver or Newest()
        self.store = store or MemoryStore()
        self.queue = self.open()
        self.index = 1
        custom = TubeKind.CUSTOM
        create = CreateTube("t", custom, TubeOptions(), driver="newest", driver_version=3)
        self.do(Startup(1, 0, "f", 1), create)

    def open(self):
        return Queue(self.store, SMALL, drivers={self.driver.name: self.driver})

    def do(self, *commands):
        self.index += 1
        return self.queue.apply(self.index, 1_000 + self.index, commands)

    def put(self, *bodies, **wishes):
        (result,) = self.do(Put("t", [NewTask(body, len(body), **wishes) for body in bodies]))
        return result

    def taken(self, tasks_max=99):
        (result,) = self.do(Take(["t"], tasks_max=tasks_max))
        return result.tasks

    def reopen(self):
        before = self.queue.digest()
        self.store.write(self.queue.collect_writes())
        self.queue = self.open()
        assert self.queue.digest() == before


def bodies(tasks):
    return [task.body for task in tasks]


def test_the_driver_decides_the_order():
    stage = Stage()
    stage.put(b"1", b"2")
    stage.put(b"3")
    assert bodies(stage.taken()) == [b"3", b"2", b"1"]


@pytest.mark.parametrize("times", [1, 5])
def test_order_and_memory_survive_a_restart(times):
    stage = Stage()
    for _ in range(times):
        stage.put(b"1", b"2", b"3", b"4", b"5")
        stage.reopen()
    assert bodies(stage.taken(2)) == [b"5", b"4"]
    stage.put(b"6")
    assert bodies(stage.taken(2)) == [b"6", b"3"]


def test_a_released_task_is_placed_again():
    stage = Stage()
    stage.put(b"1", b"2")
    (second,) = stage.taken(1)
    stage.do(Settle([Release([second.token])]))
    assert bodies(stage.taken()) == [b"1", b"2"]


def test_delayed_and_kicked_tasks_are_placed_when_they_become_ready():
    stage = Stage()
    stage.put(b"late", delay_ms=2)
    stage.put(b"now")
    stage.do()
    assert bodies(stage.taken()) == [b"late", b"now"]
    stage.do(Kick("t", 9))


def test_an_updated_ready_task_is_placed_again():
    stage = Stage()
    stage.put(b"1", b"2")
    stage.do(UpdateTasks("t", ByIds([1]), TaskUpdate(priority=5)))
    assert bodies(stage.taken()) == [b"1", b"2"]


def test_a_task_that_the_driver_refuses_is_refused_on_its_own():
    stage = Stage()
    result = stage.put(b"ok", b"x" * 11)
    assert list(result.ids) == [1, 0]
    (refused,) = result.refused
    assert refused.refusal.reason is Reason.KIND_UNSUITABLE
    assert refused.refusal.message == "too large"


def test_the_driver_may_refuse_tasks_from_other_tubes():
    stage = Stage()
    retry = RetryPolicy(exhausted=Exhausted.DEAD_LETTER)
    options = TubeOptions(retry=retry, dead_letter_tube="t")
    stage.do(CreateTube("source", TubeKind.FIFO, options))
    tasks = [NewTask(body, len(body)) for body in (b"ok", b"x" * 11, b"y" * 11)]
    stage.do(Put("source", tasks))
    (taken,) = stage.do(Take(["source"], tasks_max=3))
    tokens = [task.token for task in taken.tasks]
    (moved,) = stage.do(Settle([Release(tokens[:2], move_to="t")]))
    assert [(one.item, one.refusal.reason) for one in moved.refused] == [(1, KIND_UNSUITABLE)]
    (whole,) = stage.do(Settle([Release(tokens[1:], move_to="t")], atomic=True))
    assert whole.reason is KIND_UNSUITABLE
    stage.do(
        Settle([Reject(tokens[2:])])
    )  # The dead-letter tube does not accept the task, so the task is buried.
    assert bodies(stage.taken()) == [b"ok"]
    (counts,) = stage.queue.statistics(["source"])
    assert counts.states[State.BURIED] == 1


def test_a_truncated_tube_starts_with_an_empty_memory():
    stage = Stage()
    stage.put(b"1")
    stage.do(TruncateTube("t"))
    stage.put(b"2")
    stage.reopen()
    assert bodies(stage.taken()) == [b"2"]
    stage.do(DropTube("t", force=True))
    stage.reopen()


def test_a_node_without_the_driver_neither_applies_nor_opens():
    create = CreateTube("t", TubeKind.CUSTOM, TubeOptions(), driver="newest", driver_version=3)
    with pytest.raises(TubeDriverMissing, match="'newest' in version 3; installed here: none"):
        Queue(MemoryStore(), SMALL).apply(1, 1, [create])
    stage = Stage()
    stage.reopen()
    newer = Newest()
    newer.version = 4
    with pytest.raises(TubeDriverMissing, match="in version 3; installed here: newest 4"):
        Queue(stage.store, SMALL, drivers={"newest": newer})


class Failing(Newest):
    """Fails for tasks with the payload size 7; ``wrong`` is returned instead of an exception."""

    def __init__(self, hook, wrong=None):
        self.hook = hook
        self.wrong = wrong

    def _fails(self, hook, arrival):
        if hook != self.hook or arrival.payload_bytes != 7:
            return False
        if self.wrong is None:
            raise KeyError(arrival.type)
        return True

    def refuse(self, arrival):
        return self.wrong if self._fails("refuse", arrival) else ""

    def place(self, arrival, memory):
        return self.wrong if self._fails("place", arrival) else super().place(arrival, memory)


POISON = b"7" * 7


@pytest.mark.parametrize(
    "driver",
    [
        Failing("refuse"),
        Failing("place"),
        Failing("refuse", wrong=7),
        Failing("place", wrong=(1, b"")),
        Failing("place", wrong=Placement(1.5, b"")),
        Failing("place", wrong=Placement(RANK_MAX + 1, b"")),
        Failing("place", wrong=Placement(1, "text")),
        Failing("place", wrong=Placement(0, b"x" * (MEMORY_BYTES_MAX + 1))),
    ],
)
def test_a_driver_that_fails_quarantines_its_tube_and_the_others_serve(driver):
    stage = Stage(driver)
    stage.do(CreateTube("other", TubeKind.FIFO, TubeOptions()))
    stage.put(b"1")
    (held,) = stage.taken()
    assert stage.put(POISON).ids == [2], "the task is kept"
    at = stage.index
    assert stage.put(b"3").reason is Reason.TUBE_QUARANTINED
    put, taken, both, alone = stage.do(
        Put("other", [NewTask(b"o", 1)]), Take(["other"]), Take(["t", "other"]), Take(["t"])
    )
    assert not put.refused
    assert bodies(taken.tasks) == [b"o"]
    assert bodies(both.tasks) == []
    assert alone.reason is Reason.TUBE_QUARANTINED
    assert alone.metadata == {"tube": "t", "driver": "newest"}
    stage.do(Settle([Release([held.token])]))
    assert stage.queue.tube("t").quarantined_at == at
    assert stage.queue.quarantined_tubes() == ["t"]
    assert not stage.queue.has_ready("t")
    stage.reopen()
    assert stage.put(b"3").reason is Reason.TUBE_QUARANTINED
    assert stage.queue.quarantined_tubes() == ["t"]


def test_a_driver_that_fails_at_a_deadline_quarantines_its_tube():
    stage = Stage(Failing("place"))
    stage.put(POISON, delay_ms=3)
    assert stage.queue.quarantined_tubes() == []
    for _ in range(4):
        stage.do()
    assert stage.queue.quarantined_tubes() == ["t"]


def test_tasks_leave_a_quarantined_tube_by_a_move():
    stage = Stage(Failing("place"))
    stage.do(CreateTube("other", TubeKind.FIFOTTL, TubeOptions()))
    stage.put(b"1", POISON, b"3")
    stage.do(Move("t", ByIds([1, 2, 3]), "other"))
    (taken,) = stage.do(Take(["other"], tasks_max=9))
    assert bodies(taken.tasks) == [b"1", POISON, b"3"]


def test_a_quarantined_tube_accepts_no_moved_task():
    stage = Stage(Failing("place"))
    stage.do(CreateTube("other", TubeKind.FIFOTTL, TubeOptions()), Put("other", [NewTask(b"", 0)]))
    stage.put(POISON)
    (moved,) = stage.do(Move("other", ByIds([1]), "t"))
    assert moved.reason is Reason.TUBE_QUARANTINED


@pytest.mark.parametrize("command", [TruncateTube("t"), DropTube("t")])
def test_a_truncation_or_a_drop_ends_the_quarantine(command):
    stage = Stage(Failing("place"))
    stage.put(POISON)
    at = stage.index
    stage.do(command)
    assert stage.queue.quarantined_tubes() == []
    assert stage.queue.quarantines.outcome_at(at), "members that replay the entry ask for it"
    stage.reopen()
    assert stage.queue.quarantines.outcome_at(at)
    stage.do(
        CreateTube("t", TubeKind.CUSTOM, TubeOptions(), True, driver="newest", driver_version=3)
    )
    assert stage.put(b"1").refused == []


def test_old_failures_are_forgotten_beyond_the_maximum():
    stage = Stage(Failing("place"))
    for _ in range(QUARANTINES_MAX + 1):
        stage.put(POISON)
        stage.do(TruncateTube("t"))
    first = 3
    assert stage.queue.quarantines.outcome_at(first) is None
    assert stage.queue.quarantines.outcome_at(first + 3) == 0
    assert stage.queue.quarantines.outcome_at(first + 4)
    stage.reopen()


@pytest.mark.parametrize("hook", ["refuse", "place"])
def test_a_trial_finds_that_a_driver_fails_and_changes_nothing(hook):
    stage = Stage(Failing(hook))
    before = stage.queue.digest()
    poisoned = Put("t", [NewTask(b"1", 1), NewTask(POISON, 7)])
    refusal = stage.queue.refusal_by_trial(ExecuteBatch([poisoned]))
    assert refusal == stage.queue.refusal_by_trial(poisoned)
    assert refusal.reason is Reason.DRIVER_FAILED
    assert refusal.metadata == {"tube": "t", "driver": "newest", "item": "1"}
    assert f"{hook} raised KeyError" in refusal.message
    assert stage.queue.refusal_by_trial(Put("t", [NewTask(b"1", 1)])) is None
    assert stage.queue.refusal_by_trial(Put("none", [NewTask(POISON, 7)])) is None
    assert stage.queue.digest() == before


def test_a_repeated_put_is_not_tried_again():
    driver = Failing("place")
    stage = Stage(driver)
    driver.hook = ""
    again = Put("t", [NewTask(POISON, 7)], request_id="r", request_hash=1)
    stage.do(again)
    driver.hook = "place"
    assert stage.queue.refusal_by_trial(again) is None
