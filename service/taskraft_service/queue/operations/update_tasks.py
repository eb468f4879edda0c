"""Change attributes of waiting tasks in place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from taskraft_service.queue.entities.instants import NEVER_MS, after, lengthened
from taskraft_service.queue.entities.life_cycle import LIFE_CYCLE, Operation
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.task_state import BURIED, DELAYED, HELD, READY, State
from taskraft_service.queue.entities.tube import QueueTask, wrong_state
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    ReadyPrediction,
    side_of_tube,
)
from taskraft_service.queue.operations.selection import (
    CONTENT_ITEMS,
    Selector,
    at_most,
    selected_items,
)
from taskraft_service.queue.operations.task_change import TaskChange, change_selected, claim_growth
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.transitions.updating import (
    TaskUpdate,
    refusal_of_attributes,
    refusal_of_content,
    set_delay,
    update_task,
)
from taskraft_service.queue.values import value


@value
class UpdateTasks:
    """Change held, ready, delayed and buried tasks.

    Answer: ``CountResult``.
    """

    tube: str
    selector: Selector
    update: TaskUpdate
    request_id: str = ""
    request_hash: int = 0


WAITING: Final = (HELD, READY, DELAYED, BURIED)
"""States of tasks that are neither finished nor taken."""
CIRCULATING: Final = (READY, DELAYED)
"""Waiting states in which a delay is supported."""


def _states(command: UpdateTasks) -> Sequence[State]:
    """Return the states that an update supports."""
    return WAITING if command.update.delay_ms is None else CIRCULATING


def _refusal_to_update(state: QueueState, task: QueueTask, command: UpdateTasks) -> Refusal | None:
    if task.state not in _states(command):
        return wrong_state(task)
    return refusal_of_content(state, task, command.update)


def _update(state: QueueState, task: QueueTask, command: UpdateTasks) -> bool:
    """Update a task and append an event; only a new delay, or delay 0, changes the state.

    A task whose state is unchanged keeps its start time.
    """
    update = command.update
    leave_order(task)
    operation = Operation.UPDATE
    if update.delay_ms is not None:
        set_delay(state, task, update.delay_ms)
        is_delayed = update.delay_ms > 0
        operation = Operation.UPDATE_DELAYED if is_delayed else Operation.UPDATE_UNDELAYED
    update_task(state, task, update)
    is_delayed = LIFE_CYCLE[task.state, operation] is DELAYED
    if update.ttl_ms is not None and is_delayed and task.expire_at_ms < NEVER_MS:
        # The delay can be over: an entry fires a limited number of deadlines, and the rest later.
        task.ttl_ms = lengthened(task.ttl_ms, task.visible_at_ms - state.now_ms)
        task.expire_at_ms = after(state.now_ms, task.ttl_ms)
    transition(state, task.tube, (task,), operation)
    return True


UPDATING: Final[TaskChange[UpdateTasks]] = TaskChange(
    states=_states,
    apply=_update,
    refusal=_refusal_to_update,
    refusal_of_all=lambda _, tube, command: refusal_of_attributes(tube, command.update),
    claim=claim_growth,
    is_bounded=True,
)


def _predict(prediction: ReadyPrediction, command: UpdateTasks) -> None:
    prediction.add((command.tube,), at_most(command.selector))


def _growth_bytes(command: UpdateTasks) -> int:
    return len(command.update.content) * at_most(command.selector)


def _items(command: UpdateTasks) -> int:
    return selected_items(command) * (CONTENT_ITEMS if command.update.content else 1)


DEFINITION: Final = CommandDefinition(
    UpdateTasks,
    partial(change_selected, UPDATING),
    predict=_predict,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    growth_bytes=_growth_bytes,
    items=_items,
)
