"""Lease ready tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Final

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, after
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.refusal import Reason, Refusal, no_task
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, READY, TaskOutcome
from taskraft_service.queue.entities.task_view import TaskView
from taskraft_service.queue.entities.tube import QueueTask, QueueTube, wrong_state
from taskraft_service.queue.entities.tube_options import TtlScope
from taskraft_service.queue.operations.candidates import ScanBudget
from taskraft_service.queue.operations.choosing import (
    choose,
    choose_living,
    choose_within,
    open_tubes,
)
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    predict_nothing,
    shown_answer,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup, union_of_sides
from taskraft_service.queue.state.working_set import by_tube
from taskraft_service.queue.store.fields import Numbers
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.values import value


@value
class Take:
    """Lease ready tasks of one or more tubes, until a session or a period ends.

    Answer: ``TakeResult``.

    ``weights``: one share per tube; without weights the most urgent task of all tubes is next.
    ``taker``: principal that takes; empty: access control is off, or a session holds the leases.
    """

    tubes: Sequence[str]
    session_id: str = ""
    tasks_max: int = 1
    bytes_max: int = 3 * 1024 * 1024
    ttr_ms: int | None = None
    types: Sequence[str] = ()
    priority_bound: int | None = None
    task_id: int | None = None
    request_id: str = ""
    request_hash: int = 0
    weights: Sequence[int] = ()
    taker: str = ""


@value
class TakeResult:
    """The leased tasks in order.

    ``cut_short``: the take skipped the maximum number of tasks that are less urgent than
    ``priority_bound``; later tasks may be urgent enough. This flag is not stored for repeated
    requests.
    """

    tasks: Sequence[TaskView]
    cut_short: bool = False


SESSIONLESS_TTR_MS: Final = 60_000
"""Default time to run of a lease without a session, in ms."""


def take(state: QueueState, command: Take) -> TakeResult | Refusal:
    """Lease the first ready tasks of the given tubes, or one task by id."""
    named = _tubes(state, command)
    if isinstance(named, Refusal):
        return named
    session = None
    room = command.tasks_max
    if command.session_id:
        found = state.sessions.find(command.session_id)
        if isinstance(found, Refusal):
            return found
        session = found
        room = min(room, state.limits.session_taken_max - len(session.held))
    tubes, allowed = open_tubes(named, state.now_ms)
    budget = ScanBudget(state.limits.passed_max, len(tubes))
    if command.task_id is not None:
        chosen = _chosen(state, command, tubes if room > 0 else [])
    elif allowed:
        choice = partial(choose, state, command, budget)
        chosen = choose_within(tubes, allowed, room, command.bytes_max, choice)
    else:
        chosen = choose(state, command, budget, tubes, room, command.bytes_max)
    if isinstance(chosen, Refusal):
        return chosen
    views: list[TaskView] = []
    if not chosen:
        return TakeResult(views, budget.cut_short)
    operation = Operation.TAKE if command.task_id is None else Operation.TAKE_CHOSEN
    for tube, run in ((tubes[0], chosen),) if len(tubes) == 1 else by_tube(chosen):
        views += _lease(
            state, tube, run, repeat(session), command.ttr_ms, repeat(command.taker), operation
        )
    return TakeResult(views, budget.cut_short)


def take_each(state: QueueState, commands: Sequence[Take]) -> Sequence[TakeResult]:
    """Execute takes of one task each together; all name the same tube and the same time to run.

    Returns the results of the first takes. The other takes are not executed, because a limit may
    apply to them or no task is left.
    """
    tube = state.tubes.get(commands[0].tubes[0])
    if tube is None or tube.has_limits or tube.options.take_paused or tube.quarantined_at:
        return ()
    held_max = state.limits.session_taken_max - len(commands)
    holders: list[QueueSession | None] = []
    takers: list[str] = []
    for command in commands:
        session = None
        if command.session_id:
            session = state.sessions.get(command.session_id)
            if session is None or len(session.held) > held_max:
                return ()
        holders.append(session)
        takers.append(command.taker)
    tasks = choose_living(state, tube, len(commands))
    if not tasks:
        return ()
    views = _lease(state, tube, tasks, holders, commands[0].ttr_ms, takers)
    return [TakeResult([view]) for view in views]


def _tubes(state: QueueState, command: Take) -> list[QueueTube] | Refusal:
    """Return the tubes of a take that are not paused.

    If a take names several tubes, missing tubes and tubes in quarantine are skipped, because a
    pattern may have matched them earlier. If no other tube is named, the take is refused.
    """
    if len(command.tubes) == 1:
        only = state.tubes.get(command.tubes[0])
        if only is not None:
            if only.quarantined_at:
                return only.refusal_of_quarantine() or []
            return [] if only.options.take_paused else [only]
    found: list[QueueTube] = []
    missing: Refusal | None = None
    quarantined: Refusal | None = None
    is_served = False
    names = dict.fromkeys(command.tubes)
    for name in names:
        tube = state.tubes.find(name)
        if isinstance(tube, Refusal):
            missing = tube
        elif tube.quarantined_at:
            quarantined = tube.refusal_of_quarantine()
        else:
            is_served = True
            if not tube.options.take_paused:
                found.append(tube)
    return found if is_served else quarantined or missing or found


def _chosen(
    state: QueueState, command: Take, tubes: Sequence[QueueTube]
) -> list[QueueTask] | Refusal:
    """Take one task by id, whatever its position; the task may be READY, DELAYED or BURIED."""
    assert command.task_id is not None
    if len(command.tubes) != 1:
        return Refusal(Reason.INVALID_FIELD, "task_id needs exactly one tube", {"field": "task_id"})
    if not tubes:  # the tube is paused, or the session has its maximum of leases
        return []
    task = state.find(tubes[0], command.task_id)
    if task is None:
        return no_task(command.task_id)
    if task.state not in (READY, DELAYED, BURIED):
        return wrong_state(task)
    if not tubes[0].ready.may_give(task.subqueue):
        return Refusal(
            Reason.WRONG_STATE,
            f"sub-queue {task.subqueue!r} has its maximum of leases; retry when one ends",
            {"task_id": str(task.id), "subqueue": task.subqueue},
        )
    if not tubes[0].subqueue_rates.allows(task.subqueue):
        return []
    state.touch_task(task)
    leave_order(task)
    if tubes[0].ttl_ends[task.state] and task.expire_at_ms <= state.now_ms:
        end(state, task, Operation.TTL_END, TaskOutcome.EXPIRED)
        return no_task(task.id)
    tubes[0].ready.claim(task, state.now_ms)
    return [task]


def _lease_end(state: QueueState, task: QueueTask, ttr_ms: int | None) -> int:
    """Return the instant at which a new lease expires.

    A lease with a session expires with the session, a lease without a session after
    ``SESSIONLESS_TTR_MS``, unless a time to run is set. With the TTL scope UNTAKEN a lease never
    outlasts the time to live.
    """
    run_ms = task.ttr_ms if ttr_ms is None else ttr_ms
    if task.session is None and run_ms >= FOREVER_MS:
        run_ms = SESSIONLESS_TTR_MS
    if run_ms >= FOREVER_MS and task.expire_at_ms >= NEVER_MS:
        return NEVER_MS
    lease_until_ms = after(state.now_ms, run_ms)
    if task.tube.options.ttl_scope is TtlScope.UNTAKEN:
        return min(lease_until_ms, task.expire_at_ms)
    return lease_until_ms


def _lease(
    state: QueueState,
    tube: QueueTube,
    run: Sequence[QueueTask],
    holders: Iterable[QueueSession | None],
    ttr_ms: int | None,
    takers: Iterable[str],
    operation: Operation = Operation.TAKE,
) -> list[TaskView]:
    """Lease tasks of one tube and one state; return their views.

    The tasks are already removed from their order. This function is on the hot path of consumers;
    see bench/core_cycle.py.
    """
    for task, session, taker in zip(run, holders, takers, strict=False):
        task.attempt += 1
        task.session = session
        task.taker = taker
        is_timed = task.ttr_ms < FOREVER_MS or task.expire_at_ms < NEVER_MS
        if is_timed or session is None or ttr_ms is not None:
            task.lease_until_ms = _lease_end(state, task, ttr_ms)
            if ttr_ms is not None and ttr_ms < FOREVER_MS <= task.ttr_ms:
                task.extras = replace(task.extras, lease_ms=ttr_ms)
    transition(state, tube, run, operation)
    if tube.has_rate:
        if tube.bucket is not None:
            tube.bucket.use(len(run), state.now_ms)
        state.set_tube_timer(tube)
    return [task.view(task.body if task.body is not None else state.body(task)) for task in run]


def _side(command: Take, side_lookup: SideLookup) -> Side:
    return union_of_sides(side_lookup(tube) for tube in command.tubes)


def _tokens_of(answer: TakeResult) -> Sequence[int]:
    return [task.token for task in answer.tasks]


def _show(state: QueueState, tokens: Sequence[int]) -> TakeResult:
    """Return the leases of the first answer that are still valid."""
    tasks = [state.leases[token] for token in tokens if token in state.leases]
    return TakeResult([task.view(state.body(task)) for task in tasks])


TUBES_PER_ITEM: Final = 20
"""Number of tubes of a take that count as one item, although the take may lease no task of them."""


def _items(command: Take) -> int:
    return max(command.tasks_max, len(command.tubes) // TUBES_PER_ITEM)


DEFINITION: Final = CommandDefinition(
    Take,
    take,
    predict=predict_nothing,
    side=_side,
    answer=shown_answer(3, _show, Numbers("tokens", "Q", of=_tokens_of)),
    items=_items,
)
