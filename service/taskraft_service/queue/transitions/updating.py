"""Change the content, the attributes and the unique key of a task.

Content and attributes can change alone or together with a transition. A unique key of a tube
belongs to at most one task. A new task takes the key over if its current holder does not conflict
with the put, for example because the holder is finished and retained. The former holder has no key
from then on, and can be restarted only if it gets the key back.
"""

from __future__ import annotations

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, after
from taskraft_service.queue.entities.refusal import Reason, Refusal, key_taken, together
from taskraft_service.queue.entities.task_state import DELAYED, FINISHED
from taskraft_service.queue.entities.tube import QueueTask, QueueTube, Stored
from taskraft_service.queue.entities.tube_limits import refusal_of_delay, refusal_of_fields
from taskraft_service.queue.state.content_work import Edited, KeptEdit
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value


@value
class TaskUpdate:
    """Changes of one task; None leaves an attribute unchanged; durations count from now.

    Args:
        content: changes of the body, opaque to the queue, for its ``Editor``; empty: none.
        priority: the new priority.
        delay_ms: the new delay; ignored for a READY task.
        ttl_ms: the new time to live.
        ttr_ms: the new time to run, from the next take.
    """

    content: bytes = b""
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    ttr_ms: int | None = None


def refusal_of_change(tube: QueueTube, delay_ms: int, update: TaskUpdate | None) -> Refusal | None:
    """Return which changes of a delay and an update the tube does not support, or None."""
    refusals = [
        refusal_of_delay(tube, "delay_ms", delay_ms),
        refusal_of_attributes(tube, update),
    ]
    return together([refusal for refusal in refusals if refusal is not None])


def refusal_of_attributes(tube: QueueTube, update: TaskUpdate | None) -> Refusal | None:
    """Return which attributes of an update the tube does not support, or None."""
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
        return tube.refusal_of_priority("update.priority", update.priority)
    return refusal


def refusal_of_content(
    state: QueueState, task: QueueTask, update: TaskUpdate | None, *, is_moved: bool = False
) -> Refusal | None:
    """Return why a command cannot change the content of a task, or move the content, or None.

    Each check counts towards the content of the command.
    """
    if update is None or not update.content:
        return refusal_of_bytes(state, task.payload_bytes) if is_moved else None
    refusal = refusal_of_bytes(state, task.payload_bytes)
    if refusal is not None:
        return refusal
    edited = _edited(state, task, update.content)
    if isinstance(edited, Refusal):
        return edited
    state.content.size += edited.work_bytes
    return None


def refusal_of_bytes(state: QueueState, content_bytes: int) -> Refusal | None:
    """Count the content of one more task of the command; return why it is too much, or None.

    The first task is never too much, so a client can always send one task alone.
    """
    most = state.limits.command_content_bytes_max
    before = state.content.size
    if before < most:
        state.content.size = before + content_bytes
        return None
    return Refusal(
        Reason.TOO_MANY_STEPS,
        f"the tasks before have {before} bytes of content, and one request changes or moves at "
        f"most {most}; send the other tasks in another request",
        {"steps": str(before + content_bytes), "limit": str(most)},
    )


def _edited(state: QueueState, task: QueueTask, changes: bytes) -> Edited | Refusal:
    """Return the changed content of a task, or a refusal.

    The checks and the change itself ask for the same edit, one after the other.
    """
    kept = state.content.edit
    if kept is None or kept.task is not task or kept.changes is not changes:
        kept = KeptEdit(task, changes, state.content.editor(state.body(task), changes))
        state.content.edit = kept
    return kept.result


def growth(state: QueueState, task: QueueTask, update: TaskUpdate | None) -> int:
    """Return the payload bytes that an update adds to a task; negative if the task shrinks."""
    if update is None or not update.content:
        return 0
    edited = _edited(state, task, update.content)
    return 0 if isinstance(edited, Refusal) else edited.payload_bytes - task.payload_bytes


def refusal_of_growth(
    state: QueueState, task: QueueTask, update: TaskUpdate | None
) -> Refusal | None:
    """Return why the tube's capacity does not allow the growth by an update, or None."""
    if not task.tube.has_capacity:
        return None
    return task.tube.refusal_to_grow(0, growth(state, task, update))


def update_task(state: QueueState, task: QueueTask, update: TaskUpdate) -> None:
    """Apply an update, except for its delay, which the transition or the caller applies.

    The caller has removed the task from its order, and makes a transition afterwards.
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
    edited = _edited(state, task, change)
    assert not isinstance(edited, Refusal), "refusal_of_content was not asked"
    replace_body(state, task, edited)


def replace_body(state: QueueState, task: QueueTask, edited: Edited) -> None:
    """Replace the content of a task, and correct all counts of its bytes."""
    state.content.edit = None
    state.touch_task(task)
    state.tubes.touch(task.tube)
    state.resident_bytes += len(edited.body) - len(task.body or b"")
    task.tube.counters.resize(edited.payload_bytes - task.payload_bytes)
    task.body = edited.body
    task.payload_bytes = edited.payload_bytes
    if task.written is not None and task.written[-1] is Stored.CURRENT:
        task.written = (*task.written[:-1], Stored.OUTDATED)


def holder(state: QueueState, tube: QueueTube, key: tuple[str, ...]) -> QueueTask | None:
    """Return the task that has a key, or None; the task may be finished."""
    return state.find(tube, state.unique_keys.find(tube.number, key))


def reclaim(state: QueueState, task: QueueTask) -> Refusal | None:
    """Give a finished task its former key; return a refusal if an unfinished task has it."""
    key = task.extras.unique_key
    if not key:
        return None
    other = holder(state, task.tube, key)
    if other is not None and other.id != task.id and other.state not in FINISHED:
        return key_taken(other.id)
    claim(state, task.tube, key, task.id)
    return None


def claim(state: QueueState, tube: QueueTube, key: tuple[str, ...], task_id: int) -> None:
    """Give a key to a task, and delete the failure of the last task that had the key."""
    state.unique_keys.claim(tube.number, key, task_id)
    state.failures.begin_anew(tube.number, key)


def set_delay(state: QueueState, task: QueueTask, delay_ms: int) -> None:
    """Set a new delay, from now, for a task that the caller has removed from its order.

    The time to live that follows the delay does not change.
    """
    now_ms = state.now_ms
    was_visible_at_ms = task.visible_at_ms if task.state is DELAYED else now_ms
    task.visible_at_ms = after(now_ms, delay_ms)
    if task.expire_at_ms < NEVER_MS:
        shift_ms = task.visible_at_ms - was_visible_at_ms
        task.ttl_ms = min(max(task.ttl_ms + shift_ms, 0), FOREVER_MS)
        task.expire_at_ms = min(max(task.expire_at_ms + shift_ms, now_ms), NEVER_MS)


def refusal_of_key(state: QueueState, target: QueueTube, key: tuple[str, ...]) -> Refusal | None:
    """Return why a task cannot have a unique key in a tube, or None."""
    other = holder(state, target, key) if key else None
    return None if other is None or other.state in FINISHED else key_taken(other.id)
