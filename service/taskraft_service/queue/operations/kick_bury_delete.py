"""Kick, bury and delete tasks, and release all leases of a tube."""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.event_cause import failure_cause
from taskraft_service.queue.entities.instants import after, lengthened, postponed
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.refusal import CountResult, ItemRefusal, Refusal
from taskraft_service.queue.entities.task_state import (
    BURIED,
    DELAYED,
    READY,
    STATES,
    TaskOutcome,
)
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube import QueueTask, QueueTube, wrong_state
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    ReadyPrediction,
    side_of_name,
    side_of_tube,
    tubes_of_end,
)
from taskraft_service.queue.operations.lease_returns import begin_return
from taskraft_service.queue.operations.selection import (
    Selector,
    at_most,
    change_each,
    selected_items,
)
from taskraft_service.queue.state.lease_returns import LeaseReturn
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.endings import bury as bury_task
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.transitions.updating import (
    TaskUpdate,
    refusal_of_change,
    refusal_of_content,
    refusal_of_growth,
    update_task,
)
from taskraft_service.queue.values import value


@value
class ReleaseAll:
    """Release all taken tasks of a tube.

    Answer: ``CountResult``.
    """

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class Kick:
    """Make buried tasks ready: the first ``count`` tasks, or selected tasks.

    Answer: ``CountResult``.
    """

    tube: str
    count: int = 1
    selector: Selector | None = None
    delay_ms: int = 0
    request_id: str = ""
    request_hash: int = 0
    update: TaskUpdate | None = None


@value
class Bury:
    """Bury ready and delayed tasks.

    Answer: ``CountResult``.
    """

    tube: str
    selector: Selector
    failure: Failure | None = None
    request_id: str = ""
    request_hash: int = 0


@value
class Delete:
    """Remove tasks in any state.

    Answer: ``CountResult``.
    """

    tube: str
    selector: Selector
    request_id: str = ""
    request_hash: int = 0


def kick(state: QueueState, command: Kick, *, is_admitted: bool = False) -> CountResult | Refusal:
    """Make buried tasks READY or DELAYED: selected tasks, or the first by priority and id.

    ``is_admitted``: the capacity of the tube is not checked, because a batch has checked it.
    """
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    refusal = refusal_of_change(tube, command.delay_ms, command.update)
    if refusal is not None:
        return refusal
    if command.selector is None:
        return _kick_first(state, tube, command)

    def change(task: QueueTask) -> bool | Refusal:
        if task.state is not BURIED:
            return wrong_state(task)
        refusal = refusal_of_content(state, task, command.update)
        if refusal is None and not is_admitted:
            refusal = refusal_of_growth(state, task, command.update)
        if refusal is not None:
            return refusal
        leave_order(task)
        _kick(state, task, command)
        tube.counters.note(CountedOperation.DIG)
        return True

    return change_each(state, tube, command.selector, (BURIED,), change)


def _kick_first(state: QueueState, tube: QueueTube, command: Kick) -> CountResult:
    """Kick the first buried tasks by priority and id."""
    count = 0
    wanted = min(command.count, state.limits.kick_tasks_max)
    while count < wanted and (order := tube.buried.least()) is not None:
        task = state.find(tube, order[2])
        assert task is not None, f"tube {tube.number} has no buried task {order[2]}"
        assert task.state is BURIED
        refusal = refusal_of_content(state, task, command.update) or refusal_of_growth(
            state, task, command.update
        )
        if refusal is not None:
            return CountResult(count, [ItemRefusal(count, refusal)])
        tube.buried.pop_least()
        _kick(state, task, command)
        count += 1
    return CountResult(count)


def _kick(state: QueueState, task: QueueTask, command: Kick) -> None:
    delay_ms = command.delay_ms
    if command.update is not None:
        update_task(state, task, command.update)
    if delay_ms > 0:
        task.ttl_ms = lengthened(task.ttl_ms, delay_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
        task.visible_at_ms = after(state.now_ms, delay_ms)
    operation = Operation.KICK_DELAYED if delay_ms > 0 else Operation.KICK
    transition(state, task.tube, (task,), operation)


def bury(state: QueueState, command: Bury) -> CountResult | Refusal:
    """Bury ready and delayed tasks; tasks that are buried already are not counted."""
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    failure = command.failure
    cause = failure_cause(failure)

    def change(task: QueueTask) -> bool | Refusal:
        if task.state is BURIED:
            return False
        if task.state not in (READY, DELAYED):
            return wrong_state(task)
        leave_order(task)
        bury_task(state, task, Operation.BURY, failure, cause)
        return True

    return change_each(state, tube, command.selector, (READY, DELAYED), change)


def delete(state: QueueState, command: Delete) -> CountResult | Refusal:
    """Remove tasks in any state; the lease of a taken task becomes stale."""
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube

    def change(task: QueueTask) -> bool:
        leave_order(task)
        end(state, task, Operation.DELETE, TaskOutcome.DELETED)
        return True

    return change_each(state, tube, command.selector, STATES, change)


def release_all(state: QueueState, command: ReleaseAll) -> CountResult | Refusal:
    """Release all taken tasks of a tube, in the order of their takes; later entries continue."""
    tube = state.tubes.find(command.name)
    if isinstance(tube, Refusal):
        return tube
    taken = len(tube.leases)
    begin_return(state, LeaseReturn(False, tube.number, state.token))  # noqa: FBT003 - a record
    return CountResult(taken)


def _predict_kick(prediction: ReadyPrediction, command: Kick) -> None:
    prediction.add((command.tube,), max(command.count, at_most(command.selector)))


def _predict_end(prediction: ReadyPrediction, command: Bury | Delete) -> None:
    prediction.add(tubes_of_end(prediction.state, command.tube))


def _predict_release_all(prediction: ReadyPrediction, command: ReleaseAll) -> None:
    prediction.add((command.name,))


def _growth_bytes(command: Kick) -> int:
    if command.update is None:
        return 0
    return len(command.update.content) * max(command.count, at_most(command.selector))


def _kick_items(command: Kick) -> int:
    return max(command.count, selected_items(command))


KICK: Final = CommandDefinition(
    Kick,
    kick,
    predict=_predict_kick,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    growth_bytes=_growth_bytes,
    items=_kick_items,
)
BURY: Final = CommandDefinition(
    Bury,
    bury,
    predict=_predict_end,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    items=selected_items,
)
DELETE: Final = CommandDefinition(
    Delete,
    delete,
    predict=_predict_end,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    items=selected_items,
)
RELEASE_ALL: Final = CommandDefinition(
    ReleaseAll,
    release_all,
    predict=_predict_release_all,
    side=side_of_name,
    answer=COUNT_ANSWER,
)
