"""Change the content and the attributes of a task, alone or together with a transition."""

from __future__ import annotations

from taskraft_service.queue.entities.editor import Edited
from taskraft_service.queue.entities.instants import after
from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.entities.refusals import delay_unsuitable, together, unsuitable_to_kind
from taskraft_service.queue.entities.task import QueueTask, Stored
from taskraft_service.queue.entities.task_update import TaskUpdate
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.state.queue_state import QueueState


def unsuitable_transition(
    tube: QueueTube, delay_ms: int, update: TaskUpdate | None
) -> Refusal | None:
    """Return all that no task of a tube may have of a delay and a change, or None."""
    refusals = [
        delay_unsuitable(tube, "delay_ms", delay_ms),
        unsuitable_to_tube(tube, update),
    ]
    return together([refusal for refusal in refusals if refusal is not None])


def unsuitable_to_tube(tube: QueueTube, update: TaskUpdate | None) -> Refusal | None:
    """Return all of a change that no task of a tube may have, or None."""
    if update is None:
        return None
    wishes = {
        "update.priority": update.priority,
        "update.delay_ms": update.delay_ms,
        "update.ttl_ms": update.ttl_ms,
        "update.ttr_ms": update.ttr_ms,
    }
    unsuitable = unsuitable_to_kind(tube, wishes)
    if unsuitable is None and update.priority is not None:
        return tube.priority_refusal("update.priority", update.priority)
    return unsuitable


def unsuitable_content(
    ledger: QueueState, task: QueueTask, update: TaskUpdate | None
) -> Refusal | None:
    """Return why a task cannot have the content of a change, or None."""
    if update is None or not update.content:
        return None
    edited = ledger.editor(ledger.body(task), update.content)
    return edited if isinstance(edited, Refusal) else None


def growth(ledger: QueueState, task: QueueTask, update: TaskUpdate | None) -> int:
    """Return how many bytes of payload a change adds to a task; negative: it takes some."""
    if update is None or not update.content:
        return 0
    edited = ledger.editor(ledger.body(task), update.content)
    return 0 if isinstance(edited, Refusal) else edited.payload_bytes - task.payload_bytes


def no_room_to_grow(
    ledger: QueueState, task: QueueTask, update: TaskUpdate | None
) -> Refusal | None:
    """Return why a tube has no room for what a change adds to a task, or None."""
    if not task.tube.has_capacity:
        return None
    return task.tube.full(0, growth(ledger, task, update))


def update_task(ledger: QueueState, task: QueueTask, update: TaskUpdate) -> None:
    """Apply a change, but for its delay: that belongs to the transition, or to the caller.

    The task is out of its order; the caller puts it back or moves it, which also sets its timer.
    """
    ledger.touch_task(task)
    if update.content:
        _edit(ledger, task, update.content)
    if update.priority is not None:
        task.priority = update.priority
        task.order = (task.order[0], task.tube.rank(update.priority), task.id)
    if update.ttl_ms is not None:
        task.ttl_ms = max(update.ttl_ms, 0)
        task.expire_at_ms = after(ledger.now_ms, update.ttl_ms)
    if update.ttr_ms is not None:
        task.ttr_ms = max(update.ttr_ms, 0)


def _edit(ledger: QueueState, task: QueueTask, change: bytes) -> None:
    edited = ledger.editor(ledger.body(task), change)
    assert not isinstance(edited, Refusal), "unsuitable_content was not asked"
    replace_body(ledger, task, edited)


def replace_body(ledger: QueueState, task: QueueTask, edited: Edited) -> None:
    """Give a task other content, and correct everything that counts its bytes."""
    ledger.touch_task(task)
    ledger.tubes.touch(task.tube)
    ledger.resident_bytes += len(edited.body) - len(task.body or b"")
    task.tube.counters.resize(edited.payload_bytes - task.payload_bytes)
    task.body = edited.body
    task.payload_bytes = edited.payload_bytes
    if task.written is not None and task.written[-1] is Stored.CURRENT:
        task.written = (*task.written[:-1], Stored.OUTDATED)
