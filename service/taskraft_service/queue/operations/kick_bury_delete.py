"""Kick, bury and delete tasks, and release all leases of a tube."""

from __future__ import annotations

from functools import partial
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
from taskraft_service.queue.operations.batch_draft import BatchDraft
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
    CONTENT_ITEMS,
    Selector,
    at_most,
    selected_items,
)
from taskraft_service.queue.operations.task_change import TaskChange, change_selected, claim_growth
from taskraft_service.queue.state.lease_returns import LeaseReturn
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.endings import bury, end
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


def kick(state: QueueState, command: Kick) -> CountResult | Refusal:
    """Make buried tasks READY or DELAYED: selected tasks, or the first by priority and id."""
    if command.selector is not None:
        return change_selected(KICKING, state, command)
    tube = state.tubes.find(command.tube)
    if isinstance(tube, Refusal):
        return tube
    return _refusal_of_kick(state, tube, command) or _kick_first(state, tube, command)


def _refusal_of_kick(_state: QueueState, tube: QueueTube, command: Kick) -> Refusal | None:
    """Return why no task of a tube can be kicked as the command says, or None."""
    return refusal_of_change(tube, command.delay_ms, command.update)


def _kick_selected(state: QueueState, task: QueueTask, command: Kick) -> bool:
    leave_order(task)
    _kick(state, task, command)
    task.tube.counters.note(CountedOperation.DIG)
    return True


def _refusal_to_kick(state: QueueState, task: QueueTask, command: Kick) -> Refusal | None:
    if task.state is not BURIED:
        return wrong_state(task)
    return refusal_of_content(state, task, command.update)


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


def _bury(state: QueueState, task: QueueTask, command: Bury) -> bool:
    if task.state is BURIED:
        return False
    leave_order(task)
    bury(state, task, Operation.BURY, command.failure, failure_cause(command.failure))
    return True


def _refusal_to_bury(_state: QueueState, task: QueueTask, _command: Bury) -> Refusal | None:
    return None if task.state in (READY, DELAYED, BURIED) else wrong_state(task)


def _delete(state: QueueState, task: QueueTask, _command: Delete) -> bool:
    """Remove a task in any state; the lease of a taken task becomes stale."""
    leave_order(task)
    end(state, task, Operation.DELETE, TaskOutcome.DELETED)
    return True


def _free(draft: BatchDraft, task: QueueTask, _command: Delete) -> None:
    draft.keys.free(task, is_kept=False)
    draft.room.add(task.tube, -1, -task.payload_bytes)


KICKING: Final[TaskChange[Kick]] = TaskChange(
    states=lambda _: (BURIED,),
    apply=_kick_selected,
    refusal=_refusal_to_kick,
    refusal_of_all=_refusal_of_kick,
    claim=claim_growth,
    is_bounded=True,
)
BURYING: Final[TaskChange[Bury]] = TaskChange(
    states=lambda _: (READY, DELAYED), apply=_bury, refusal=_refusal_to_bury
)
DELETING: Final[TaskChange[Delete]] = TaskChange(
    states=lambda _: STATES, apply=_delete, claim=_free
)


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
    has_content = command.update is not None and bool(command.update.content)
    return max(command.count, selected_items(command)) * (CONTENT_ITEMS if has_content else 1)


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
    partial(change_selected, BURYING),
    predict=_predict_end,
    side=side_of_tube,
    answer=COUNT_ANSWER,
    items=selected_items,
)
DELETE: Final = CommandDefinition(
    Delete,
    partial(change_selected, DELETING),
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
