"""Know the tasks that the operations of a batch name, so that none is named twice."""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task import QueueTask


class NamedTasks:
    """The tasks that operations change, and those that the puts of the batch depend on.

    No task is changed twice, and none that is depended on is changed: so each is there, as it was
    when it was checked, until its operation is done.
    """

    __slots__ = ("_awaited", "_named")

    def __init__(self) -> None:
        """Begin with none."""
        self._named: set[tuple[int, int]] = set()
        self._awaited: set[tuple[int, int]] = set()

    def name(self, task: QueueTask) -> Refusal | None:
        """Note that an operation changes a task; return why it may not, or None."""
        place = (task.tube.number, task.id)
        if place in self._named:
            return _refusal(task, "is named twice in one batch")
        self._named.add(place)
        return _named_and_awaited(task) if place in self._awaited else None

    def depend_on(self, task: QueueTask) -> Refusal | None:
        """Note that a put depends on a task; return why it may not, or None."""
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
