"""Administrative changes of selected tasks: snatch, restart and switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.event_cause import NO_CAUSE
from taskraft_service.queue.entities.instants import NEVER_MS, after, lengthened
from taskraft_service.queue.entities.life_cycle import EventKind, Operation
from taskraft_service.queue.entities.refusal import CountResult, Refusal
from taskraft_service.queue.entities.task_state import (
    BURIED,
    DELAYED,
    DONE,
    FINISHED,
    READY,
    TAKEN,
    ZOMBIE,
    State,
    TaskOutcome,
)
from taskraft_service.queue.entities.tube import QueueTask, wrong_state
from taskraft_service.queue.entities.tube_limits import refusal_of_delay
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    ReadyPrediction,
    side_of_tube,
)
from taskraft_service.queue.operations.releasing import come_back, forget_attempts, give_back
from taskraft_service.queue.operations.selection import (
    Selector,
    at_most,
    change_each,
    selected_items,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.endings import bury, end
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.transitions.updating import reclaim, set_delay
from taskraft_service.queue.values import value


@value
class Snatch:
    """Revoke leases; a revoked attempt stays counted as an attempt.

    Answer: ``CountResult``.
    """

    tube: str
    selector: Selector
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


@value
class Restart:
    """Start delayed, buried and finished tasks again.

    Answer: ``CountResult``.

    Ready and taken tasks are left unchanged and not counted.
    """

    tube: str
    selector: Selector
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


@value
class Switch:
    """Move tasks without a lease to READY, DELAYED, BURIED, DONE or ZOMBIE.

    Answer: ``CountResult``. ``duration_ms``: delay of a DELAYED task, retention of a ZOMBIE.
    """

    tube: str
    selector: Selector
    state: State
    duration_ms: int = 0
    request_id: str = ""
    request_hash: int = 0


RESTARTABLE: Final = (DELAYED, BURIED, DONE, ZOMBIE)


SWITCHABLE: Final = (READY, DELAYED, BURIED, DONE, ZOMBIE)


SWITCHES: Final[Mapping[State, Operation]] = {
    READY: Operation.SWITCH_READY,
    DELAYED: Operation.SWITCH_DELAYED,
    BURIED: Operation.SWITCH_BURIED,
    DONE: Operation.SWITCH_DONE,
    ZOMBIE: Operation.SWITCH_ZOMBIE,
}
"""Operation of a switch, by its target state."""


def snatch(state: QueueState, command: Snatch) -> CountResult | Refusal:
    """Revoke leases: the tasks become READY or DELAYED, and the tokens become stale."""
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube

    def change(task: QueueTask) -> bool | Refusal:
        if task.state is not TAKEN:
            return wrong_state(task)
        if command.delay_ms > 0:
            set_delay(state, task, command.delay_ms)
            give_back(state, task, EventKind.SNATCH, is_delayed=True)
        else:
            come_back(state, task, EventKind.SNATCH)
        return True

    return refusal_of_delay(tube, "delay_ms", command.delay_ms) or change_each(
        state, tube, command.selector, (TAKEN,), change
    )


def restart(state: QueueState, command: Restart) -> CountResult | Refusal:
    """Start tasks again from their first attempt; READY and TAKEN tasks are left unchanged."""
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube

    def change(task: QueueTask) -> bool | Refusal:
        if task.state in (READY, TAKEN):
            return False
        if task.state not in RESTARTABLE:
            return wrong_state(task)
        refusal = reclaim(state, task)
        if refusal is None:
            restart_one(state, task, command.delay_ms)
        return refusal or True

    return refusal_of_delay(tube, "delay_ms", command.delay_ms) or change_each(
        state, tube, command.selector, RESTARTABLE, change
    )


def restart_one(state: QueueState, task: QueueTask, delay_ms: int) -> None:
    """Start a delayed, buried or finished task again.

    The caller has checked that no other task has the unique key of this task.
    """
    leave_order(task)
    forget_attempts(task)
    _live_again(state, task, delay_ms)
    operation = Operation.RESTART_DELAYED if delay_ms > 0 else Operation.RESTART
    transition(state, task.tube, (task,), operation)


def switch(state: QueueState, command: Switch) -> CountResult | Refusal:
    """Move tasks without a lease to the given state.

    A task that is already in the state is left unchanged, except that a DELAYED or ZOMBIE task gets
    the new duration.
    """
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube

    def change(task: QueueTask) -> bool | Refusal:
        if task.state not in SWITCHABLE:
            return wrong_state(task)
        if task.state is command.state and task.state not in (DELAYED, ZOMBIE):
            return False
        if command.state not in FINISHED:
            refusal = reclaim(state, task)
            if refusal is not None:
                return refusal
        _switch_one(state, task, command.state, command.duration_ms)
        return True

    delay_ms = command.duration_ms if command.state is DELAYED else 0
    return refusal_of_delay(tube, "duration_ms", delay_ms) or change_each(
        state, tube, command.selector, SWITCHABLE, change
    )


def _switch_one(queue_state: QueueState, task: QueueTask, state: State, duration_ms: int) -> None:
    """Move a task to a state; a finished task gets a new time to live."""
    leave_order(task)
    delay_ms = duration_ms if state is DELAYED else 0
    if task.state in FINISHED and state not in FINISHED:
        _live_again(queue_state, task, delay_ms)
    elif state is DELAYED:
        set_delay(queue_state, task, delay_ms)
    if state in FINISHED:
        retain_until_ms = after(queue_state.now_ms, duration_ms) if state is ZOMBIE else 0
        task.extras = replace(task.extras, retain_until_ms=retain_until_ms)
        end(queue_state, task, SWITCHES[state], TaskOutcome.PROCESSED)
    elif state is BURIED:
        bury(queue_state, task, SWITCHES[state], None, NO_CAUSE, EventKind.SWITCH)
    else:
        transition(queue_state, task.tube, (task,), SWITCHES[state])


def _live_again(state: QueueState, task: QueueTask, delay_ms: int) -> None:
    """Clear the outcome of a task, and restart its time to live after the delay."""
    task.extras = replace(
        task.extras,
        outcome=TaskOutcome.NONE,
        result=None,
        result_content_type="",
        retain_until_ms=0,
        progress=None,
    )
    task.visible_at_ms = after(state.now_ms, delay_ms) if delay_ms > 0 else NEVER_MS
    task.expire_at_ms = after(state.now_ms, lengthened(task.ttl_ms, delay_ms))


def _predict(prediction: ReadyPrediction, command: Snatch | Restart | Switch) -> None:
    prediction.add((command.tube,), at_most(command.selector))


DEFINITIONS: Final = (
    CommandDefinition(
        Snatch,
        snatch,
        predict=_predict,
        side=side_of_tube,
        answer=COUNT_ANSWER,
        items=selected_items,
    ),
    CommandDefinition(
        Restart,
        restart,
        predict=_predict,
        side=side_of_tube,
        answer=COUNT_ANSWER,
        items=selected_items,
    ),
    CommandDefinition(
        Switch,
        switch,
        predict=_predict,
        side=side_of_tube,
        answer=COUNT_ANSWER,
        items=selected_items,
    ),
)
