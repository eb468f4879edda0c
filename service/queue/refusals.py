"""Say why something is not done to a task; what several operations refuse alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.queue.commands import Reason, Refusal

if TYPE_CHECKING:
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube


def no_task(task_id: int) -> Refusal:
    """Say that a task does not exist."""
    return Refusal(
        Reason.TASK_NOT_FOUND, "no such task, or not any more", {"task_id": str(task_id)}
    )


def no_task_of_key(key: tuple[str, ...]) -> Refusal:
    """Say that no task has a unique key."""
    return Refusal(Reason.TASK_NOT_FOUND, "no task has this key", {"key": "/".join(key)})


def wrong_state(task: Task) -> Refusal:
    """Say that a task's state does not allow the operation."""
    return Refusal(
        Reason.WRONG_STATE,
        f"task {task.id} is {task.state.name}",
        {"task_id": str(task.id), "state": task.state.name},
    )


def key_taken(task_id: int) -> Refusal:
    """Say that an unfinished task has the unique key."""
    return Refusal(
        Reason.KEY_TAKEN,
        f"task {task_id} has this key and is not finished",
        {"task_id": str(task_id)},
    )


def delay_unsuitable(tube: Tube, field: str, delay_ms: int) -> Refusal | None:
    """Return that tasks of this kind of tube are never delayed, if a delay is asked for."""
    if delay_ms <= 0 or tube.has_options:
        return None
    return Refusal(
        Reason.INVALID_FIELD,
        f"{field} means nothing in a tube of kind {tube.kind.name}",
        {"field": field, "kind": tube.kind.name},
    )
