"""The time from which a schedule counts: creation, a new pattern, the end of a pause."""

from dataclasses import replace

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.schedules import (
    CreateSchedule,
    DeleteSchedule,
    RunSchedule,
    ScheduleResult,
    UpdateSchedule,
)
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec
from tests.service.queue.memory_store import MemoryStore

PLAN = ScheduleSpec("mail", "daily", Overlap.ALLOW, False, b"x")


class Node:
    def __init__(self):
        self.queue = Queue(MemoryStore(), Limits())
        self.index = 0
        mail = CreateTube("mail", TubeKind.FIFO, TubeOptions())
        self.do(100, Startup(1, 0, "feed", 1), mail, CreateSchedule("s", PLAN, 500))

    def do(self, now_ms, *commands):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def since(self):
        return self.queue.schedule("s").since_ms

    def update(self, now_ms, **changes):
        self.do(now_ms, UpdateSchedule("s", replace(PLAN, **changes), 900))


def test_only_a_new_pattern_and_the_end_of_a_pause_restart_the_count():
    node = Node()
    assert node.since() == 100
    node.update(200, overlap=Overlap.SKIP)
    assert node.since() == 100, "it was not paused"
    node.update(300, paused=True)
    node.update(400, paused=True)
    assert node.since() == 100, "the schedule is still paused"
    assert node.queue.schedule("s").next_ms == 500
    node.update(500)
    assert node.since() == 500
    node.update(600, pattern="weekly", paused=True)
    view = node.queue.schedule("s")
    assert (view.since_ms, view.done_ms, view.next_ms) == (600, 600, 900)


def test_paused_and_ended_schedules_have_no_next_time():
    node = Node()
    paused = replace(PLAN, paused=True)
    for name, plan, next_ms in (("later", PLAN, 900), ("paused", paused, 600), ("ended", PLAN, 0)):
        node.do(200, CreateSchedule(name, plan, next_ms))
    assert sorted(node.queue.schedule_times()) == [(500, "s"), (900, "later")]
    node.do(300, DeleteSchedule("s"))
    assert node.queue.schedule_times() == [(900, "later")]
    assert node.queue.schedule_names() == ["ended", "later", "paused"]


def test_times_are_put_once_in_order_and_within_their_run():
    node = Node()
    slots = [ScheduledTime(at_ms, b"") for at_ms in (90, 100, 101, 300, 301)]
    (result,) = node.do(300, RunSchedule("s", 1, slots, 300, 301))
    assert result.count == 2, "earlier times and later times are left out"
    assert node.queue.schedule("s").done_ms == 300
    (again,) = node.do(300, RunSchedule("s", 1, slots, 300, 301))
    assert again.count == 0
    (rest,) = node.do(301, RunSchedule("s", 1, slots, 301, 302))
    assert rest.count == 1
    (late,) = node.do(302, RunSchedule("s", 2, [ScheduledTime(302)], 302, 303))
    assert late.count == 0, "no plan of this version was made"
    assert node.queue.schedule("s").last_task_id == 3


def test_an_etag_names_the_definition_and_not_the_progress():
    node = Node()
    etag = node.queue.schedule("s").options.etag
    node.do(300, RunSchedule("s", 1, [ScheduledTime(300, b"")], 300, 301))
    assert node.queue.schedule("s").options.etag == etag
    (changed,) = node.do(301, UpdateSchedule("s", replace(PLAN, body=b"y"), 900, etag))
    assert isinstance(changed, ScheduleResult)
    assert changed.schedule.options.etag != etag
    before = node.queue.schedule("s")
    for command in (UpdateSchedule("s", PLAN, 900, etag), DeleteSchedule("s", etag)):
        (refused,) = node.do(302, command)
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.SCHEDULE_CHANGED
        assert refused.metadata["etag"] == before.options.etag
        assert node.queue.schedule("s") == before
    node.do(303, DeleteSchedule("s", before.options.etag))
    assert node.queue.schedule("s") is None


def test_each_part_of_a_definition_changes_the_etag():
    definitions = [
        ScheduleSpec("mail", "p", body=b"ab", spec=b"c"),
        ScheduleSpec("mail", "p", body=b"a", spec=b"bc"),
    ]
    assert len({one.etag for one in definitions}) == 2
