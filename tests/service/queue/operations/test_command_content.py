"""One command changes or moves a bounded amount of content, whatever its tasks hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from taskraft_service.queue.entities.bulk_sweep import BulkAction, BulkRequest, BulkState
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.bulk_sweeps import RunBulkSweep, StartBulkSweep
from taskraft_service.queue.operations.kick_bury_delete import Bury, Kick
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import items_of
from taskraft_service.queue.operations.selection import CONTENT_ITEMS, ByFilter, ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.state.content_work import Edited
from taskraft_service.queue.transitions.moving import BYTES_PER_STEP
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.memory_store import MemoryStore

ALL = ByIds([1, 2, 3, 4, 5])
WHOLE_TUBE = ByFilter(None, 100)
NEW = TaskUpdate(content=b"new")
LAST = Failure("E", "failed for good", fatal=True)
OF_TEN_BYTES = NewTask(b"0123456789", 10)


@dataclass
class Stage:
    """A queue with five tasks of 10 bytes in the tube a; one command handles up to 20 bytes.

    ``edits`` are the contents that the editor was given.
    """

    limits: Limits = field(default_factory=lambda: Limits(command_content_bytes_max=20))
    task: NewTask = OF_TEN_BYTES
    index: int = 0
    edits: list[bytes] = field(default_factory=list)

    def __post_init__(self):
        self.queue = Queue(MemoryStore(), self.limits, editor=self._edit)
        retry = RetryPolicy(attempts_max=1, exhausted=Exhausted.DEAD_LETTER)
        options = TubeOptions(dead_letter_tube="dead", retry=retry, capacity_tasks=100)
        self.do(Startup(1, 0, "feed", 1))
        self.do(CreateTube("dead", TubeKind.FIFO, TubeOptions()))
        self.do(CreateTube("a", TubeKind.FIFOTTL, options))
        self.do(Put("a", [self.task] * 5))

    def _edit(self, body, changes):
        self.edits.append(body)
        return Edited(changes, len(changes), len(changes))

    def do(self, command):
        self.index += 1
        return self.queue.apply(self.index, 1_000 + self.index, [command])[0]

    def take(self):
        return [lease.token for lease in self.do(Take(["a"], tasks_max=5)).tasks]

    def states(self):
        return [task.state for task in self.queue.get_tasks("a", ALL.ids)]


def places(result):
    """Return the places of the refused items, which are all refused for their content."""
    assert {item.refusal.reason for item in result.refused} <= {Reason.TOO_MANY_STEPS}
    return [item.item for item in result.refused]


def test_an_update_changes_the_first_tasks_and_refuses_the_others():
    """Old and new content count: 13 bytes for each task."""
    stage = Stage()
    result = stage.do(UpdateTasks("a", ALL, NEW))
    assert (result.count, places(result)) == (2, [2, 3, 4])
    assert result.refused[0].refusal.metadata == {"steps": "36", "limit": "20"}
    assert len(stage.edits) == 2, "each content is edited once, and not read if it is too much"


def test_a_filter_continues_with_the_next_command():
    stage = Stage()
    first = stage.do(UpdateTasks("a", WHOLE_TUBE, NEW))
    assert (first.count, list(first.refused), first.continue_after_id) == (2, [], 2)
    second = stage.do(UpdateTasks("a", ByFilter(None, 100, 2), NEW))
    assert (second.count, second.continue_after_id) == (2, 4)
    assert stage.do(UpdateTasks("a", ByFilter(None, 100, 4), NEW)).continue_after_id == 0


def test_a_change_without_content_is_not_bounded():
    assert Stage().do(UpdateTasks("a", ALL, TaskUpdate(ttr_ms=5))).count == 5


def test_one_task_is_always_changed():
    stage = Stage(Limits(command_content_bytes_max=1))
    for number in ALL.ids:
        assert stage.do(UpdateTasks("a", ByIds([number]), NEW)).count == 1


def test_moves_are_bounded():
    stage = Stage()
    result = stage.do(Move("a", ALL, "dead"))
    assert (result.count, places(result)) == (2, [2, 3, 4])
    assert stage.do(Move("a", WHOLE_TUBE, "dead")).continue_after_id == 4


def test_kicks_with_a_change_are_bounded():
    stage = Stage()
    stage.do(Bury("a", ALL, None))
    assert places(stage.do(Kick("a", selector=ALL, update=NEW))) == [2, 3, 4]
    assert places(stage.do(Kick("a", count=9, update=NEW))) == [2]
    assert stage.do(Kick("a", count=9)).count == 1


@pytest.mark.parametrize(
    "settlement",
    [
        lambda tokens: Release(tokens, move_to="dead"),
        lambda tokens: Release(tokens, failure=LAST),
        Reject,
        lambda tokens: Ack(tokens, result=bytes(10), keep=Keep.ZOMBIE, retain_ms=1_000),
    ],
    ids=["move", "last attempt", "reject", "kept result"],
)
def test_settlements_are_bounded(settlement):
    stage = Stage()
    tokens = stage.take()
    assert places(stage.do(Settle([settlement(tokens)]))) == [2, 3, 4]
    assert places(stage.do(Settle([settlement(tokens[2:])]))) == [2]


@pytest.mark.parametrize(
    ("settlement", "edits"),
    [
        (lambda tokens: Release(tokens, update=NEW), 2),
        (lambda tokens: BuryTaken(tokens, update=NEW), 2),
        (lambda tokens: Ack(tokens, keep=Keep.ZOMBIE, retain_ms=1_000, update=NEW), 4),
    ],
    ids=["release", "bury", "ack"],
)
def test_settlements_with_a_change_edit_few_contents(settlement, edits):
    """An acknowledgement checks all tasks before it ends the first, so it edits each twice."""
    stage = Stage()
    assert places(stage.do(Settle([settlement(stage.take())]))) == [2, 3, 4]
    assert len(stage.edits) == edits


def test_an_atomic_settle_and_a_batch_change_nothing():
    stage = Stage()
    tokens = stage.take()
    refused = stage.do(Settle([Reject(tokens)], atomic=True))
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.TOO_MANY_STEPS
    assert stage.states() == [State.TAKEN] * 5
    stage.do(Settle([Release(tokens)]))
    parts = [Move("a", ByIds([number]), "dead") for number in (1, 2, 3)]
    refused = stage.do(ExecuteBatch(parts))
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.metadata["operation"]) == (Reason.TOO_MANY_STEPS, "2")
    assert stage.states() == [State.READY] * 5
    assert not isinstance(stage.do(ExecuteBatch(parts[:2])), Refusal)


@pytest.mark.parametrize("ids", [ALL.ids, []], ids=["ids", "filter"])
def test_a_bulk_sweep_moves_the_other_tasks_in_later_steps(ids):
    stage = Stage()
    request = BulkRequest("a", "", ids, BulkAction.MOVE, "dead", "", 100, "")
    stage.do(StartBulkSweep(request))
    sweep = stage.queue.bulk_sweep(1)
    while sweep.state is BulkState.RUNNING:
        left = ByIds(ids[sweep.position :]) if ids else ByFilter(None, 100, sweep.position)
        stage.do(RunBulkSweep(1, sweep.steps, Move("a", left, "dead")))
        sweep = stage.queue.bulk_sweep(1)
    assert (sweep.changed, sweep.refused, sweep.steps) == (5, 0, 3)


def test_large_dead_letters_take_more_steps_of_an_ended_session():
    """An entry has room for one of the tasks, which each take three steps.

    The entry that closes the session has a step more, because such work always goes on.
    """
    limits = Limits(steps_beside_max=3, steps_alone_max=3)
    large = NewTask(b"large", 2 * BYTES_PER_STEP)
    stage = Stage(limits, large)
    stage.do(OpenSession("anna", ttr_ms=60_000))
    stage.do(Take(["a"], session_id="anna", tasks_max=5))
    stage.do(CloseSession("anna"))
    moved = [stage.queue.ready_count("dead")]
    for _ in range(3):
        stage.index += 1
        stage.queue.apply(stage.index, 1_000 + stage.index, [])
        moved.append(stage.queue.ready_count("dead"))
    assert moved == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "command",
    [
        UpdateTasks("a", ALL, NEW),
        Move("a", ALL, "dead"),
        Kick("a", selector=ALL, update=NEW),
        Settle([Release(ALL.ids, move_to="dead")]),
        Settle([BuryTaken(ALL.ids, update=NEW)]),
        Settle([Ack(ALL.ids, result=bytes(2_000))]),
    ],
    ids=["update", "move", "kick", "release", "bury", "ack"],
)
def test_an_entry_has_room_for_few_contents(command):
    assert items_of(command) == 5 * CONTENT_ITEMS
