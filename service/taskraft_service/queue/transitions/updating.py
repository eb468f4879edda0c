"""Change the content and the attributes of a task, alone or together with a transition."""

from __future__ import annotations

from taskraft_service.queue.entities.instants import after
from taskraft_service.queue.entities.refusal import Refusal, together
from taskraft_service.queue.entities.task_update import Edited, TaskUpdate
from taskraft_service.queue.entities.tube import QueueTask, QueueTube, Stored
from taskraft_service.queue.entities.tube_limits import refusal_of_delay, refusal_of_fields
from taskraft_service.queue.state.queue_state import QueueState


def refusal_of_change(tube: QueueTube, delay_ms: int, update: TaskUpdate | None) -> Refusal | None:
    """Return everything in a delay and an update that the tube's tasks cannot have, or None."""
    refusals = [
        refusal_of_delay(tube, "delay_ms", delay_ms),
        refusal_of_attributes(tube, update),
    ]
    return together([refusal for refusal in refusals if refusal is not None])


def refusal_of_attributes(tube: QueueTube, update: TaskUpdate | None) -> Refusal | None:
    """Return everything in an update that the tube's tasks cannot have, or None."""
    if update is None:
        return None
    fields = {
        "update.priority": update.priority,
        "update.delay_ms": update.delay_ms,
        "update.ttl_ms": update.ttl_ms,
        "update.ttr_ms": update.ttr_ms,
    }
    refusal = refusal_of_fields(tube, fields)
    if refusal is None and update.priority is not None:
        return tube.priority_refusal("update.priority", update.priority)
    return refusal


def refusal_of_content(
    state: QueueState, task: QueueTask, update: TaskUpdate | None
) -> Refusal | None:
    """Return why the content of a task cannot be edited as the update says, or None."""
    if update is None or not update.content:
        return None
    edited = state.editor(state.body(task), update.content)
    return edited if isinstance(edited, Refusal) else None


def growth(state: QueueState, task: QueueTask, update: TaskUpdate | None) -> int:
    """Return by how many payload bytes an update grows a task; negative if the task shrinks."""
    if update is None or not update.content:
        return 0
    edited = state.editor(state.body(task), update.content)
    return 0 if isinstance(edited, Refusal) else edited.payload_bytes - task.payload_bytes


def refusal_of_growth(
    state: QueueState, task: QueueTask, update: TaskUpdate | None
) -> Refusal | None:
    """Return why the tube's capacity does not allow the growth by an update, or None."""
    if not task.tube.has_capacity:
        return None
    return task.tube.full(0, growth(state, task, update))


def update_task(state: QueueState, task: QueueTask, update: TaskUpdate) -> None:
    """Apply an update, except for its delay: the transition, or the caller, applies the delay.

    The caller has taken the task out of its order, and makes a transition afterwards.
    """
    state.touch_task(task)
    if update.content:
        _edit(state, task, update.content)
    if update.priority is not None:
        task.priority = update.priority
        task.order = (task.order[0], task.tube.rank(update.priority), task.id)
    if update.ttl_ms is not None:
        task.ttl_ms = max(update.ttl_ms, 0)
        task.expire_at_ms = after(state.now_ms, update.ttl_ms)
    if update.ttr_ms is not None:
        task.ttr_ms = max(update.ttr_ms, 0)


def _edit(state: QueueState, task: QueueTask, change: bytes) -> None:
    edited = state.editor(state.body(task), change)
    assert not isinstance(edited, Refusal), "refusal_of_content was not asked"
    replace_body(state, task, edited)


def replace_body(state: QueueState, task: QueueTask, edited: Edited) -> None:
    """Replace the content of a task, and correct all counts of its bytes."""
    state.touch_task(task)
    state.tubes.touch(task.tube)
    state.resident_bytes += len(edited.body) - len(task.body or b"")
    task.tube.counters.resize(edited.payload_bytes - task.payload_bytes)
    task.body = edited.body
    task.payload_bytes = edited.payload_bytes
    if task.written is not None and task.written[-1] is Stored.CURRENT:
        task.written = (*task.written[:-1], Stored.OUTDATED)
