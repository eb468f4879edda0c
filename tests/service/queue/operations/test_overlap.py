"""The last task of a schedule is the task of its last put, even after a move."""

import pytest

from taskraft_service.queue.entities.new_task import NewTask, OnConflict
from taskraft_service.queue.entities.refusal import Reason
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.schedules import CreateSchedule, RunSchedule
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.settlements import Reject, Settle
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube, TruncateTube
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec
from tests.service.queue.memory_store import MemoryStore

SKIP, CANCEL_BEFORE = Overlap.SKIP, Overlap.CANCEL_BEFORE
PUT, LEFT_OUT = 1, 0
RETRY = RetryPolicy(1, exhausted=Exhausted.DEAD_LETTER)
TUBES = {
    "mail": TubeOptions(retry=RETRY, dead_letter_tube="letters"),
    "letters": TubeOptions(),
    "other": TubeOptions(),
}


def task_of(spec):
    """Return the task of a stored spec, with a unique key if the spec has one."""
    key = ("k",) if b"keyed" in spec else ()
    conflict = OnConflict.FAIL if b"strict" in spec else OnConflict.RETURN_EXISTING
    return NewTask(spec, len(spec), unique_key=key, on_conflict=conflict)


KEYED, STRICT = task_of(b"keyed"), b"keyed strict"


class Node:
    """A queue with a schedule, reopened from its store before each command."""

    def __init__(self, overlap, spec=b"task"):
        self.store = MemoryStore()
        self.index = 0
        self.now_ms = 100
        self.do(Startup(1, 0, "feed", 1))
        for name, options in TUBES.items():
            self.do(CreateTube(name, TubeKind.FIFOTTL, options))
        self.do(CreateSchedule("s", ScheduleSpec("mail", "daily", overlap, False, spec), 1))

    @property
    def queue(self):
        return Queue(self.store, Limits(), task_of)

    def do(self, command):
        self.index += 1
        queue = self.queue
        (result,) = queue.apply(self.index, self.now_ms, [command])
        self.store.write(queue.collect_writes())
        return result

    def run(self):
        """Run the schedule for the next time; return how many tasks were put."""
        self.now_ms += 1
        slots = [ScheduledTime(self.now_ms)]
        return self.do(RunSchedule("s", 1, slots, self.now_ms, self.now_ms + 1)).count

    def update(self, **options):
        self.do(UpdateTube("mail", TubeOptions(**options), list(options)))

    def there(self, tube):
        return [task.id for task in self.queue.list_tasks(tube, (), 0, 9)]


def test_an_existing_task_with_the_key_counts_as_the_task_of_the_time():
    node = Node(SKIP, b"keyed")
    node.do(Put("mail", [KEYED]))
    node.now_ms += 50
    assert node.run() == PUT
    assert node.queue.schedule("s").last_task_id == 1
    assert node.run() == LEFT_OUT
    assert node.queue.schedule("s").left_out == 1


def test_an_existing_task_with_the_key_is_cancelled_for_the_next_time():
    node = Node(CANCEL_BEFORE, b"keyed")
    node.do(Put("mail", [KEYED]))
    node.now_ms += 50
    node.run()
    assert node.run() == PUT
    assert node.there("mail") == [2]


def test_two_schedules_may_share_a_task():
    node = Node(SKIP, b"keyed")
    other = ScheduleSpec("mail", "hourly", SKIP, False, b"keyed")
    node.do(CreateSchedule("t", other, 1))
    node.run()
    node.do(RunSchedule("t", 1, [ScheduledTime(node.now_ms)], node.now_ms, 0))
    node.do(Move("mail", ByIds([1]), "other"))
    assert node.run() == LEFT_OUT
    node.now_ms += 1
    result = node.do(RunSchedule("t", 1, [ScheduledTime(node.now_ms)], node.now_ms, 0))
    assert result.count == LEFT_OUT


def test_a_moved_task_still_overlaps():
    node = Node(SKIP)
    node.run()
    node.do(Move("mail", ByIds([1]), "other"))
    assert node.run() == LEFT_OUT
    node.do(Move("other", ByIds([1]), "letters"))
    assert node.run() == LEFT_OUT


def test_a_moved_task_is_cancelled_in_its_new_tube():
    node = Node(CANCEL_BEFORE)
    node.run()
    node.do(Move("mail", ByIds([1]), "other"))
    assert node.run() == PUT
    assert (node.there("other"), node.there("mail")) == ([], [2])


def test_a_dead_letter_does_not_overlap():
    node = Node(SKIP)
    node.run()
    (taken,) = node.do(Take(["mail"])).tasks
    node.do(Settle([Reject([taken.token])]))
    assert node.there("letters") == [1]
    assert node.run() == PUT
    assert (node.there("letters"), node.there("mail")) == ([1], [2])


@pytest.mark.parametrize("overlap", [SKIP, CANCEL_BEFORE])
@pytest.mark.parametrize("emptied", ["truncated", "created anew"])
def test_a_new_task_with_the_same_id_and_age_does_not_overlap(overlap, emptied):
    node = Node(overlap)
    node.run()
    if emptied == "truncated":
        node.do(TruncateTube("mail"))
    else:
        node.do(DropTube("mail", force=True))
        node.do(CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()))
    node.do(Put("mail", [NewTask(b"", 0)]))
    before = node.there("mail")
    assert node.run() == PUT
    assert node.there("mail") == [*before, before[0] + 1]


def test_the_last_task_stays_if_the_next_one_is_refused():
    node = Node(CANCEL_BEFORE)
    node.run()
    node.update(put_paused=True)
    assert node.run() == LEFT_OUT
    view = node.queue.schedule("s")
    assert (view.refusal.reason, view.left_out) == (Reason.TUBE_PAUSED, 1)
    assert node.there("mail") == [1]


def test_the_next_task_takes_over_capacity_and_key_of_the_last_one():
    node = Node(CANCEL_BEFORE, STRICT)
    node.update(capacity_tasks=1)
    node.run()
    assert node.run() == PUT
    assert node.there("mail") == [2]
    node.update(capacity_bytes=1)
    assert node.run() == PUT, "a tube above its lowered capacity accepts a task that adds no bytes"
    assert node.there("mail") == [3]


def test_the_last_task_stays_if_its_removal_would_not_free_capacity():
    node = Node(CANCEL_BEFORE)
    node.run()
    node.do(Move("mail", ByIds([1]), "other"))
    node.do(Put("mail", [NewTask(b"", 0)]))
    node.update(capacity_tasks=1)
    assert node.run() == LEFT_OUT
    assert node.queue.schedule("s").refusal.reason is Reason.TUBE_FULL
    assert node.there("other") == [1]
