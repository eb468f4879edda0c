"""Queries of the leader: unknown names, signals, capacity, and tubes that may become ready."""

import pytest

from taskraft_service.queue.entities.group import GroupTask
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.tube_options import Durability, TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.groups import CreateGroup, StartGroup
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.schedules import CreateSchedule, RunSchedule
from taskraft_service.queue.operations.selection import ByIds, ByKeys
from taskraft_service.queue.operations.sessions import AttachSession, CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Reject,
    Release,
    Settle,
    Touch,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduledTime, ScheduleSpec
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.memory_store import MemoryStore

TRIED = TubeOptions(
    retry=RetryPolicy(9, exhausted=Exhausted.DEAD_LETTER), dead_letter_tube="letters"
)


class Node:
    """A queue with several kinds of tubes; ``few`` has a concurrency of 1, ``sub`` one per key."""

    def __init__(self):
        self.queue = Queue(MemoryStore(), Limits())
        self.index = 0
        self.do(
            Startup(1, 0, "feed", 1),
            CreateTube("mail", TubeKind.FIFOTTL, TubeOptions()),
            CreateTube("few", TubeKind.FIFOTTL, TubeOptions(concurrency=1)),
            CreateTube("sub", TubeKind.UTUBETTL, TubeOptions()),
            CreateTube("tried", TubeKind.FIFOTTL, TRIED),
            CreateTube("letters", TubeKind.FIFOTTL, TubeOptions()),
            CreateTube("small", TubeKind.FIFOTTL, TubeOptions(capacity_tasks=1, capacity_bytes=4)),
            OpenSession("anna", "anna", 50, labels=(("host", "box"),)),
            OpenSession("attached", "", 0),
        )

    def do(self, *commands, now_ms=1_000):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def token(self, tube, session=""):
        _, result = self.do(Put(tube, [NewTask(b"x", 1)]), Take([tube], session))
        return result.tasks[0].token

    def could(self, *commands, now_ms=1_000):
        return sorted(self.queue.could_be_ready(commands, now_ms))


@pytest.fixture
def node():
    return Node()


def test_unknown_names_are_no_errors(node):
    queue = node.queue
    assert (queue.schedule("no"), queue.group("no"), queue.tube_number("no")) == (None, None, None)
    assert (queue.tube_name(99), queue.next_place("no"), queue.tube("no")) == (None, None, None)
    assert queue.failed_task("no", 1) is None
    assert queue.failed_tasks("no", ByIds([1, 2])) == [None, None]
    assert queue.failed_tasks("no", ByKeys([("a",)])) == [None]
    assert (queue.session("no"), queue.lease_tokens("no")) == (None, [])
    assert queue.cancelled("no", 9) == []
    assert queue.refusal_to_drop("no") is None
    assert queue.has_room("no", 1, 1)
    assert not queue.has_ready("no")
    assert queue.could_be_ready([Delete("no", ByIds([1]))], 1_000) == set()
    assert queue.statistics(["no"]) == []


def test_a_tube_is_found_by_number_with_its_next_task_id(node):
    node.do(Put("mail", [NewTask(b"", 0)] * 3))
    assert node.queue.next_place("mail") == (1, 4)
    assert (node.queue.tube_number("few"), node.queue.tube_name(2)) == (2, "few")


def test_capacity_is_checked_in_tasks_and_bytes(node):
    assert node.queue.has_room("small", 1, 4)
    assert not node.queue.has_room("small", 2, 4)
    assert not node.queue.has_room("small", 1, 5)
    assert node.queue.has_room("mail", 10**6, 10**9)


def test_a_tube_with_taken_tasks_is_not_dropped_without_force(node):
    assert node.queue.refusal_to_drop("mail") is None
    node.token("mail")
    assert node.queue.refusal_to_drop("mail").metadata == {"taken": "1"}


def test_the_end_task_of_a_group_signals_its_tube_once(node):
    node.do(CreateGroup("g", GroupTask("letters", b"end")), StartGroup("g"))
    assert [*node.queue.woken_tubes()] == ["letters"]
    assert [*node.queue.woken_tubes()] == []


def test_definitions_of_temporary_tubes_are_reported_once(node):
    memory = TubeOptions(durability=Durability.TEMPORARY)
    node.do(CreateTube("t", TubeKind.FIFOTTL, memory), CreateTube("u", TubeKind.FIFO, memory))
    assert [*node.queue.redefined_tubes()] == ["t", "u"]
    assert [*node.queue.redefined_tubes()] == []
    assert [*node.queue.temporary_tubes()] == ["t", "u"]
    node.do(UpdateTube("t", TubeOptions(priority=1), ["priority"]))
    node.do(UpdateTube("mail", TubeOptions(priority=1), ["priority"]))
    assert [*node.queue.redefined_tubes()] == ["t"]
    node.do(UpdateTube("t", TubeOptions(priority=1), ["priority"]))
    assert [*node.queue.redefined_tubes()] == [], "nothing has changed"
    node.do(DropTube("t"))
    assert [*node.queue.redefined_tubes()] == ["t"]
    assert [*node.queue.temporary_tubes()] == ["u"]


def test_changed_schedules_are_reported_once(node):
    node.do(CreateSchedule("s", ScheduleSpec("mail", "daily", Overlap.ALLOW, False, b""), 9_000))
    assert [*node.queue.changed_schedules()] == ["s"]
    assert [*node.queue.changed_schedules()] == []


@pytest.mark.parametrize(
    "command",
    [
        Put("mail", []),
        Kick("mail"),
        ReleaseAll("mail"),
        UpdateTube("mail", TubeOptions(), []),
        Snatch("mail", ByIds([1])),
        Restart("mail", ByIds([1])),
        Switch("mail", ByIds([1]), State.BURIED),
        UpdateTasks("mail", ByIds([1]), TaskUpdate(priority=1)),
        ExecuteBatch([Put("mail", [])]),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_that_may_make_tasks_ready_names_its_tube(node, command):
    assert node.could(command) == ["mail"]


def test_other_commands_name_no_tube(node):
    token = node.token("mail")
    others = [
        Cancel("mail", ByIds([1])),
        Delete("mail", ByIds([1])),
        Bury("mail", ByIds([1])),
        Settle([Touch([token], 5), Ack([token]), BuryTaken([token]), Release([99])]),
        RunSchedule("none", 1, [ScheduledTime(1)], 1, 2),
        CloseSession("nobody"),
        AttachSession("attached", True),
    ]
    assert node.could(*others) == []


@pytest.mark.parametrize("tube", ["few", "sub"])
def test_with_limited_concurrency_the_end_of_a_task_names_its_tube(node, tube):
    token = node.token(tube)
    for settlement in (Ack([token]), BuryTaken([token])):
        assert node.could(Settle([settlement])) == [tube]
    assert node.could(Settle([Touch([token], 5)])) == []
    assert node.could(Delete(tube, ByIds([1]))) == node.could(Bury(tube, ByIds([1]))) == [tube]
    assert node.could(Cancel(tube, ByIds([1]))) == [tube]


def test_a_release_names_its_tube_and_the_dead_letter_tube(node):
    token = node.token("tried", "anna")
    attached = node.token("mail", "attached")
    for settlement in (Release([token]), Reject([token])):
        assert node.could(Settle([settlement])) == ["letters", "tried"]
    moved = Settle([Release([token], move_to="few")])
    assert node.could(moved) == ["few", "letters", "tried"]
    assert node.could(CloseSession("anna")) == ["letters", "tried"]
    assert node.could(AttachSession("attached", False)) == ["mail"]
    assert node.could(AttachSession("attached", True)) == []
    assert node.could(now_ms=1_049) == []
    assert node.could(now_ms=1_050) == ["letters", "tried"], "the session ends"
    assert attached


def test_a_run_of_a_schedule_names_its_tube(node):
    node.do(CreateSchedule("s", ScheduleSpec("mail", "daily", Overlap.ALLOW, False, b""), 9_000))
    run = RunSchedule("s", 1, [ScheduledTime(9_000)], 9_000, 9_001)
    assert node.could(run) == ["mail"]
    (result,) = node.do(run)
    assert result.count == 1
    (there,) = node.queue.list_tasks("mail", (), 0, 9)
    node.do(Move("mail", ByIds([there.id]), "few"))
    assert node.could(run) == ["few", "mail"], "the last task may be removed there"


def test_due_deadlines_name_their_tubes(node):
    node.do(Put("mail", [NewTask(b"", 0, delay_ms=100)]))
    node.do(Put("tried", [NewTask(b"", 0, delay_ms=200)]))
    assert node.could(now_ms=1_099) == ["mail"][:0]
    assert node.could(now_ms=1_100) == ["mail"]
    assert node.could(now_ms=1_200) == ["letters", "mail", "tried"]
    node.do(DropTube("tried", force=True))
    assert node.could(now_ms=1_200) == ["mail"]
