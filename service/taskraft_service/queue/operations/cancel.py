"""Cancel selected tasks: ask the holders of taken tasks to stop, and remove other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.life_cycle import EventKind, Operation
from taskraft_service.queue.entities.refusal import REFUSED_ITEMS, ItemRefusal, Refusal
from taskraft_service.queue.entities.task_state import (
    BURIED,
    DELAYED,
    HELD,
    READY,
    TAKEN,
    TaskOutcome,
)
from taskraft_service.queue.entities.tube import QueueTask, wrong_state
from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    ReadyPrediction,
    side_of_tube,
    table_answer,
    tubes_of_end,
)
from taskraft_service.queue.operations.selection import Selector, change_each, selected_items
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.fields import Number
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.values import value


@value
class Cancel:
    """Ask the holders of taken tasks to stop, and remove other tasks.

    Answer: ``CancelResult``.
    """

    tube: str
    selector: Selector
    request_id: str = ""
    request_hash: int = 0


@value
class CancelResult:
    """Numbers of holders that were asked to stop and of removed tasks; see also ``CountResult``."""

    asked: int
    removed: int
    refused: Sequence[ItemRefusal] = ()
    continue_after_id: int = 0


CANCELLABLE: Final = (HELD, READY, DELAYED, TAKEN, BURIED)


def cancel(state: QueueState, command: Cancel) -> CancelResult | Refusal:
    """Ask the holders of tasks to stop, once each, and remove tasks without a lease."""
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    removed = 0

    def change(task: QueueTask) -> bool | Refusal:
        nonlocal removed
        if task.state not in CANCELLABLE:
            return wrong_state(task)
        if task.state is TAKEN:
            return ask_to_stop(state, task)
        leave_order(task)
        end(state, task, Operation.CANCEL, TaskOutcome.DELETED)
        removed += 1
        return True

    done = change_each(state, tube, command.selector, CANCELLABLE, change)
    return CancelResult(done.count - removed, removed, done.refused, done.continue_after_id)


def ask_to_stop(state: QueueState, task: QueueTask) -> bool:
    """Mark a taken task as cancelled; return whether it was not marked before.

    The holder receives the cancellation with its next touch or heartbeat.
    """
    if task.extras.cancel_requested:
        return False
    task.extras = replace(task.extras, cancel_requested=True)
    if task.session is not None:
        task.session.cancelled[task.token] = None
    transition(state, task.tube, (task,), Operation.CANCEL, EventKind.CANCEL)
    return True


def _predict(prediction: ReadyPrediction, command: Cancel) -> None:
    prediction.add(tubes_of_end(prediction.state, command.tube))


DEFINITION: Final = CommandDefinition(
    Cancel,
    cancel,
    predict=_predict,
    side=side_of_tube,
    answer=table_answer(
        30,
        CancelResult,
        Number("asked", "I"),
        Number("removed", "I"),
        Number("continue_after_id", "Q"),
        REFUSED_ITEMS,
    ),
    items=selected_items,
)
