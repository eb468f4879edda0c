"""Track the tasks that a batch names, so that no task is named twice."""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task import QueueTask


class NamedTasks:
    """Tasks that operations change, and tasks that puts of the batch depend on.

    No task is changed twice, and no dependency is changed. Each task is therefore in the checked
    state until its operation is executed.
    """

    __slots__ = ("_awaited", "_named")

    def __init__(self) -> None:
        """Start without tasks."""
        self._named: set[tuple[int, int]] = set()
        self._awaited: set[tuple[int, int]] = set()

    def name(self, task: QueueTask) -> Refusal | None:
        """Record that an operation changes a task; return why it cannot, or None."""
        place = (task.tube.number, task.id)
        if place in self._named:
            return _refusal(task, "is named twice in one batch")
        self._named.add(place)
        return _named_and_awaited(task) if place in self._awaited else None

    def depend_on(self, task: QueueTask) -> Refusal | None:
        """Record that a put depends on a task; return why it cannot, or None."""
        place = (task.tube.number, task.id)
        self._awaited.add(place)
        return _named_and_awaited(task) if place in self._named else None


def _named_and_awaited(task: QueueTask) -> Refusal:
    return _refusal(task, "is depended on and named by another operation")


def _refusal(task: QueueTask, what: str) -> Refusal:
    return Refusal(
        Reason.INVALID_FIELD,
        f"task {task.id} of {task.tube.name!r} {what}",
        {"tube": task.tube.name, "task_id": str(task.id)},
    )
