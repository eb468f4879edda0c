"""Every operation in every state follows the life-cycle table."""

from __future__ import annotations

import pytest

from taskraft_service.queue.entities.life_cycle import LIFE_CYCLE, EventKind, Operation
from taskraft_service.queue.entities.new_task import (
    Dependencies,
    NewTask,
    OnConflict,
    TaskReference,
    UniqueAmong,
)
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.retry_policy import Exhausted, RetryPolicy
from taskraft_service.queue.entities.task_state import STATES, State
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_options import (
    TTL_ENDS,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.admin import Restart, Snatch, Switch
from taskraft_service.queue.operations.batch import ExecuteBatch
from taskraft_service.queue.operations.cancel import Cancel
from taskraft_service.queue.operations.groups import CancelGroup, CreateGroup, StartGroup
from taskraft_service.queue.operations.kick_bury_delete import Bury, Delete, Kick, ReleaseAll
from taskraft_service.queue.operations.leadership import Startup
from taskraft_service.queue.operations.move import Move
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.settlements import (
    Ack,
    BuryTaken,
    Keep,
    Reject,
    Release,
    Settle,
    Touch,
)
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, TruncateTube
from taskraft_service.queue.operations.update_tasks import UpdateTasks
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.transitions.updating import TaskUpdate
from tests.service.queue.memory_store import MemoryStore

IMPLEMENTED = tuple(State)
TOKEN = 1
SESSION = "session-of-the-holder"
COMMANDS = {
    Operation.TAKE: Take(["tube"]),
    Operation.TAKE_CHOSEN: Take(["tube"], task_id=1),
    Operation.ACK: Settle([Ack([TOKEN])]),
    Operation.ACK_KEEP: Settle([Ack([TOKEN], keep=Keep.DONE)]),
    Operation.ACK_RETAIN: Settle([Ack([TOKEN], keep=Keep.ZOMBIE, retain_ms=100)]),
    Operation.REJECT: Settle([Reject([TOKEN])]),
    Operation.EXHAUST: Settle([Release([TOKEN], failure=Failure("broken", fatal=True))]),
    Operation.EXHAUST_REMOVE: Settle([Release([TOKEN], failure=Failure("broken"))]),
    Operation.MOVE: Settle([Release([TOKEN], move_to="other")]),
    Operation.MOVE_CHOSEN: Move("tube", ByIds([1]), "other"),
    Operation.RELEASE: Settle([Release([TOKEN])]),
    Operation.RELEASE_DELAYED: Settle([Release([TOKEN], delay_ms=10)]),
    Operation.BURY_TAKEN: Settle([BuryTaken([TOKEN])]),
    Operation.TOUCH: Settle([Touch([TOKEN], increment_ms=10)]),
    Operation.BURY: Bury("tube", ByIds([1])),
    Operation.KICK: Kick("tube", selector=ByIds([1])),
    Operation.KICK_DELAYED: Kick("tube", selector=ByIds([1]), delay_ms=10),
    Operation.DELETE: Delete("tube", ByIds([1])),
    Operation.SNATCH: Snatch("tube", ByIds([1])),
    Operation.SNATCH_DELAYED: Snatch("tube", ByIds([1]), delay_ms=10),
    Operation.RESTART: Restart("tube", ByIds([1])),
    Operation.RESTART_DELAYED: Restart("tube", ByIds([1]), delay_ms=10),
    Operation.SWITCH_READY: Switch("tube", ByIds([1]), State.READY),
    Operation.SWITCH_DELAYED: Switch("tube", ByIds([1]), State.DELAYED, 10),
    Operation.SWITCH_BURIED: Switch("tube", ByIds([1]), State.BURIED),
    Operation.SWITCH_DONE: Switch("tube", ByIds([1]), State.DONE),
    Operation.SWITCH_ZOMBIE: Switch("tube", ByIds([1]), State.ZOMBIE, 10),
    Operation.CANCEL: Cancel("tube", ByIds([1])),
    Operation.UPDATE: UpdateTasks("tube", ByIds([1]), TaskUpdate(priority=1)),
    Operation.UPDATE_DELAYED: UpdateTasks("tube", ByIds([1]), TaskUpdate(delay_ms=10)),
    Operation.UPDATE_UNDELAYED: UpdateTasks("tube", ByIds([1]), TaskUpdate(delay_ms=0)),
    Operation.SESSION_END: CloseSession(SESSION),
    Operation.RELEASE_ALL: ReleaseAll("tube"),
    Operation.TRUNCATE: TruncateTube("tube"),
    Operation.GROUP_START: StartGroup("group"),
}
ONE_ATTEMPT = RetryPolicy(attempts_max=1, exhausted=Exhausted.REMOVE)
WISHES = {
    Operation.EXHAUST_REMOVE: {"retry": ONE_ATTEMPT},
}
EVENTS = {Operation.MOVE: 2, Operation.MOVE_CHOSEN: 2}
"""Number of events of an operation that has more than one: a move has one event in each tube."""
REPLACEMENTS = {Operation.REPLACE: 0, Operation.REPLACE_DELAYED: 10}
CLOCK = {
    Operation.DELAY_END: "delay_ms",
    Operation.LEASE_END: "ttr_ms",
    Operation.RETENTION_END: "retain_ms",
}


class Stage:
    """A queue with one tube and at most one task, in a given state."""

    def __init__(self, state, scope=TtlScope.UNTAKEN, **wishes):
        self.queue = Queue(MemoryStore(), Limits())
        self.index = 0
        options = TubeOptions(
            retain_ms=wishes.pop("retain_ms", 100),
            ttl_scope=scope,
            concurrency=wishes.pop("concurrency", 0),
        )
        self.do(
            Startup(1, 60_000, "feed", 1),
            CreateTube("tube", TubeKind.FIFOTTL, options),
            CreateTube("other", TubeKind.FIFOTTL, TubeOptions()),
            OpenSession(SESSION, ttr_ms=60_000),
        )
        if state is State.GONE:
            return
        if state is State.DELAYED:
            wishes.setdefault("delay_ms", 50)
        if state is State.HELD:
            wishes["group"] = "group"
        if "group" in wishes:
            self.do(CreateGroup("group"))
        self.do(Put("tube", [NewTask(b"", 0, **wishes)]))
        if "group" in wishes and state is not State.HELD:
            self.do(StartGroup("group"))
        if state in (State.TAKEN, State.DONE, State.ZOMBIE):
            self.do(Take(["tube"], SESSION))
        if state in (State.DONE, State.ZOMBIE):
            self.do(Settle([Ack([TOKEN], keep=Keep[state.name])]))
        elif state is State.BURIED:
            self.do(Bury("tube", ByIds([1])))
        assert self.state() is state

    def do(self, *commands, now_ms=1_000):
        self.index += 1
        return self.queue.apply(self.index, now_ms, commands)

    def state(self):
        (task,) = self.queue.get_tasks("tube", [1])
        return State.GONE if task is None else task.state


def test_the_table_uses_only_implemented_states():
    """Further states of the contract need their own operations."""
    for (state, _), to_state in LIFE_CYCLE.items():
        assert state in IMPLEMENTED
        assert to_state in IMPLEMENTED


@pytest.mark.parametrize("operation", COMMANDS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("state", IMPLEMENTED, ids=lambda state: state.name)
def test_an_operation_follows_the_table(state, operation):
    """An operation that the table does not list is refused or finds no task."""
    stage = Stage(state, **WISHES.get(operation, {}))
    before = stage.queue.feed.views()[0].high_seq
    (result,) = stage.do(COMMANDS[operation])
    assert stage.state() is LIFE_CYCLE.get((state, operation), state)
    events = stage.queue.feed.views()[0].high_seq - before
    if (state, operation) not in LIFE_CYCLE:
        assert events == 0
        assert reasons(result) == [reason_why_not(state, operation)]
    elif (state, operation) != (State.BURIED, Operation.BURY):
        assert events == EVENTS.get(operation, 1)
        assert not isinstance(result, Refusal)


def reasons(result):
    """Return the reasons of refusals; None stands for an operation without a matching task."""
    if isinstance(result, Refusal):
        return [result.reason]
    refused = [item.refusal.reason for item in getattr(result, "refused", ())]
    has_found_none = getattr(result, "count", None) == 0 or getattr(result, "tasks", None) == []
    return refused or [None] * has_found_none


ALREADY = {
    (State.READY, Operation.RESTART),
    (State.READY, Operation.RESTART_DELAYED),
    (State.TAKEN, Operation.RESTART),
    (State.TAKEN, Operation.RESTART_DELAYED),
    (State.READY, Operation.SWITCH_READY),
    (State.BURIED, Operation.SWITCH_BURIED),
    (State.DONE, Operation.SWITCH_DONE),
}
"""Operations on a task that is already in the wanted state; they change nothing."""


def reason_why_not(state, operation):
    """Return the expected reason for an operation that a state does not allow."""
    command = COMMANDS[operation]
    if isinstance(command, Settle):
        return Reason.LEASE_STALE
    if isinstance(command, StartGroup):
        return Reason.GROUP_NOT_FOUND
    names_a_task = getattr(command, "selector", None) or getattr(command, "task_id", None)
    if not names_a_task or (state, operation) in ALREADY:
        return None
    return Reason.TASK_NOT_FOUND if state is State.GONE else Reason.WRONG_STATE


CLOCK_WALK = [
    (State.DELAYED, Operation.DELAY_END),
    (State.READY, Operation.LEASE_END),
    (State.TAKEN, Operation.LEASE_END),
    (State.BURIED, Operation.LEASE_END),
    (State.READY, Operation.RETENTION_END),
    (State.DONE, Operation.RETENTION_END),
    (State.ZOMBIE, Operation.RETENTION_END),
]


@pytest.mark.parametrize(("state", "operation"), CLOCK_WALK)
def test_deadlines_follow_the_table(state, operation):
    """Each deadline ends only the states that it applies to, and no millisecond early."""
    stage = Stage(state, **{CLOCK[operation]: 50})
    stage.do(now_ms=1_049)
    assert stage.state() is state
    stage.do(now_ms=1_050)
    assert stage.state() is LIFE_CYCLE.get((state, operation), state)


@pytest.mark.parametrize("scope", TtlScope, ids=lambda scope: scope.name)
@pytest.mark.parametrize("state", IMPLEMENTED[1:], ids=lambda state: state.name)
def test_a_ttl_ends_the_states_of_its_scope(state, scope):
    """Every state in every scope; without an extension, the end of the TTL ends a delay too."""
    stage = Stage(State.TAKEN if state is State.DELAYED else state, scope, ttl_ms=50)
    if state is State.DELAYED:
        release = Release([TOKEN], delay_ms=500, ttl_policy=TtlPolicy.KEEP_DEADLINE)
        stage.do(Settle([release]))
    stage.do(now_ms=1_049)
    assert stage.state() is state
    stage.do(now_ms=1_050)
    ends = state in TTL_ENDS[scope] or state is State.DELAYED
    ends = ends or (state, scope) == (State.TAKEN, TtlScope.UNTAKEN)
    assert stage.state() is (State.GONE if ends else state)


@pytest.mark.parametrize("operation", REPLACEMENTS, ids=lambda operation: operation.name)
@pytest.mark.parametrize("state", IMPLEMENTED, ids=lambda state: state.name)
def test_a_replacement_follows_the_table(state, operation):
    """A put with the key of a task replaces its content only where the table allows it."""
    stage = Stage(state, unique_key=("key",))
    new = NewTask(
        b"new",
        3,
        delay_ms=REPLACEMENTS[operation],
        unique_key=("key",),
        on_conflict=OnConflict.REPLACE_IF_WAITING,
    )
    (result,) = stage.do(Put("tube", [new]))
    replaced = (state, operation) in LIFE_CYCLE
    assert list(result.existing) == ([0] if replaced else [])
    if replaced:
        assert list(result.ids) == [1]
        assert stage.state() is LIFE_CYCLE[state, operation]
    elif state is State.TAKEN:
        assert result.refused[0].refusal.reason is Reason.KEY_TAKEN
    else:
        assert list(result.ids) == [1 if state is State.GONE else 2]


MAKING_READY = [
    (state, operation)
    for (state, operation), to_state in LIFE_CYCLE.items()
    if to_state is State.READY and operation in COMMANDS
]
ENDING_LEASES = [
    operation
    for (state, operation), to_state in LIFE_CYCLE.items()
    if state is State.TAKEN and to_state is not State.TAKEN and operation in COMMANDS
]


def signalled_tubes(queue, command, do):
    """Return the tubes that are signalled to consumers, before the entry or right after it."""
    signalled = queue.could_be_ready([command], 1_000)
    do(command)
    return signalled | set(queue.woken_tubes())


@pytest.mark.parametrize(("state", "operation"), MAKING_READY)
def test_an_operation_that_makes_a_task_ready_signals_its_tube(state, operation):
    stage = Stage(state)
    assert "tube" in signalled_tubes(stage.queue, COMMANDS[operation], stage.do)
    assert stage.state() is State.READY


@pytest.mark.parametrize("operation", ENDING_LEASES)
@pytest.mark.parametrize(
    "wrapped", [lambda command: command, lambda command: ExecuteBatch([command])]
)
def test_an_operation_that_frees_another_task_signals_its_tube(operation, wrapped):
    """In a tube with a concurrency of 1, the end of the lease frees the next task."""
    stage = Stage(State.TAKEN, concurrency=1, **WISHES.get(operation, {}))
    stage.do(Put("tube", [NewTask(b"", 0)]))
    assert not stage.queue.has_ready("tube")
    command = COMMANDS[operation]
    if type(command) in (Settle, Bury, Delete):
        command = wrapped(command)
    signalled = signalled_tubes(stage.queue, command, stage.do)
    assert "tube" in signalled or operation is Operation.TRUNCATE
    assert ("other" in signalled) is (operation is Operation.MOVE)


@pytest.mark.parametrize(("state", "operation"), CLOCK_WALK[:1] + CLOCK_WALK[2:3])
def test_a_deadline_that_was_not_predicted_signals_its_tube(state, operation):
    """The leader predicts from tasks in memory, and does not see entries in flight."""
    stage = Stage(state, **{CLOCK[operation]: 50})
    stage.do(now_ms=1_049)
    assert set(stage.queue.woken_tubes()) == set()
    stage.do(now_ms=1_050)
    assert set(stage.queue.woken_tubes()) == {"tube"}


def test_the_end_of_a_session_signals_the_tubes_of_its_tasks():
    stage = Stage(State.TAKEN)
    stage.do(CloseSession(SESSION))
    assert set(stage.queue.woken_tubes()) == {"tube"}


def test_a_revoked_group_signals_the_tubes_of_its_tasks():
    stage = Stage(State.HELD, concurrency=1)
    stage.do(StartGroup("group"), Take(["tube"], SESSION), Put("tube", [NewTask(b"", 0)]))
    assert signalled_tubes(stage.queue, CancelGroup("group"), stage.do) == {"tube"}, (
        "signalled by the start"
    )
    assert not stage.queue.has_ready("tube")
    assert signalled_tubes(stage.queue, CancelGroup("group", revoke=True), stage.do) == {"tube"}
    assert stage.queue.has_ready("tube")


def test_starting_a_group_delays_a_task_whose_delay_is_not_over():
    stage = Stage(State.HELD, delay_ms=50)
    stage.do(StartGroup("group"), now_ms=1_049)
    assert stage.state() is LIFE_CYCLE[State.HELD, Operation.GROUP_START_DELAYED]
    stage.do(now_ms=1_050)
    assert stage.state() is State.READY


@pytest.mark.parametrize(
    ("end", "delay_ms", "operation"),
    [
        (Settle([Ack([TOKEN])]), 0, Operation.DEPENDENCIES_DONE),
        (Settle([Ack([TOKEN])]), 10, Operation.DEPENDENCIES_DONE_DELAYED),
        (Delete("other", ByIds([1])), 0, Operation.DEPENDENCY_FAILED),
    ],
)
def test_the_end_of_a_dependency_follows_the_table(end, delay_ms, operation):
    """A HELD task waits for other tasks; its tube is signalled when the task becomes READY."""
    stage = Stage(State.GONE)
    after = Dependencies((TaskReference("other", 1),))
    held = NewTask(b"", 0, delay_ms=delay_ms, dependencies=after)
    stage.do(Put("other", [NewTask(b"", 0)]), Put("tube", [held]), Take(["other"]))
    assert stage.state() is LIFE_CYCLE[State.GONE, Operation.PUT_HELD]
    foreseen = stage.queue.could_be_ready([end], 1_000)
    assert ("tube" in foreseen) is isinstance(end, Settle), "the leader predicts the ready task"
    signalled = signalled_tubes(stage.queue, end, stage.do)
    assert stage.state() is LIFE_CYCLE[State.HELD, operation]
    assert ("tube" in signalled) is (operation is not Operation.DEPENDENCY_FAILED)


def test_a_lease_ends_with_the_ttl():
    """In tarantool/queue, a fifottl tube emits the event `ttr`, then the event `ttl`."""
    stage = Stage(State.TAKEN, ttl_ms=50)
    stage.do(now_ms=1_050)
    assert stage.state() is State.GONE
    kinds = [event.kind for _, event in stage.queue.feed.events(0, 0, 10)]
    assert kinds == [EventKind.PUT, EventKind.TAKE, EventKind.TTR_EXPIRED, EventKind.TTL_EXPIRED]


def test_a_delayed_task_outlives_its_ttl():
    """A delay extends the TTL, so the TTL never ends during the delay."""
    stage = Stage(State.DELAYED, ttl_ms=10)
    stage.do(now_ms=1_050)
    assert stage.state() is State.READY
    stage.do(now_ms=1_060)
    assert stage.state() is State.GONE


@pytest.mark.parametrize(
    ("delay_ms", "operation"), [(0, Operation.PUT), (10, Operation.PUT_DELAYED)]
)
def test_a_put_follows_the_table(delay_ms, operation):
    """A put creates a task."""
    stage = Stage(State.GONE)
    stage.do(Put("tube", [NewTask(b"", 0, delay_ms=delay_ms)]))
    assert stage.state() is LIFE_CYCLE[State.GONE, operation]


def test_a_put_into_a_group_that_has_not_started_is_held():
    assert Stage(State.HELD).state() is LIFE_CYCLE[State.GONE, Operation.PUT_HELD]


def test_every_operation_is_tested_here():
    """This module has a test of every operation."""
    walked = {*COMMANDS, *CLOCK, Operation.TTL_END, Operation.PUT, Operation.PUT_DELAYED}
    walked |= {Operation.PUT_HELD, Operation.GROUP_START_DELAYED, *REPLACEMENTS}
    walked |= {
        Operation.DEPENDENCIES_DONE,
        Operation.DEPENDENCIES_DONE_DELAYED,
        Operation.DEPENDENCY_FAILED,
    }
    walked |= {operation for operation, *_ in BACKED_OFF} | {Operation.CANCEL_RETURNED}
    assert walked == set(Operation)
    assert STATES[State.HELD] is State.HELD


def test_a_refusal_names_the_wrong_state():
    """The refusal contains the state of the task."""
    stage = Stage(State.TAKEN)
    (result,) = stage.do(Bury("tube", ByIds([1])))
    (item,) = result.refused
    assert item.refusal.reason is Reason.WRONG_STATE
    assert item.refusal.metadata["state"] == "TAKEN"


BACKED_OFF = [
    (Operation.LEASE_END_DELAYED, {"ttr_ms": 50}, (), 1_050),
    (Operation.SESSION_END_DELAYED, {}, (CloseSession(SESSION),), 1_000),
]


@pytest.mark.parametrize(("operation", "wishes", "commands", "now_ms"), BACKED_OFF)
def test_a_lost_lease_delays_the_task_by_its_backoff(operation, wishes, commands, now_ms):
    retry = RetryPolicy(attempts_max=5, backoff_ms=1_000)
    stage = Stage(State.TAKEN, retry=retry, **wishes)
    stage.do(*commands, now_ms=now_ms)
    assert stage.state() is LIFE_CYCLE[State.TAKEN, operation]


def test_a_release_ends_a_task_with_a_cancel_request():
    stage = Stage(State.TAKEN)
    stage.do(Cancel("tube", ByIds([1])), Settle([Release([TOKEN])]))
    assert stage.state() is LIFE_CYCLE[State.TAKEN, Operation.CANCEL_RETURNED]


@pytest.mark.parametrize("state", [State.TAKEN, State.DONE], ids=lambda state: state.name)
def test_a_put_does_not_replace_a_busy_task_that_an_earlier_item_returned(state):
    """The earlier item returns the existing task; the later item finds the same state."""
    stage = Stage(state, unique_key=("key",))
    among = UniqueAmong((State.READY, State.TAKEN, State.DONE))
    items = [
        NewTask(b"new", 3, unique_key=("key",), on_conflict=how, unique_among=among)
        for how in (OnConflict.RETURN_EXISTING, OnConflict.REPLACE_IF_WAITING)
    ]
    (result,) = stage.do(Put("tube", items))
    assert result.ids == [1, 0]
    assert result.refused[0].refusal.reason is Reason.KEY_TAKEN
    assert stage.state() is state
