"""Track what the operations of a batch need: tasks, unique keys and capacity.

All operations are checked before any is executed. The check is exact, because no two operations
change the same task. Only capacity and unique keys depend on several operations. The capacity is
estimated for all of them together, and the claimed and freed keys are tracked.
"""

from __future__ import annotations

from typing import Final

from taskraft_service.queue.entities.new_task import NewTask, TaskReference
from taskraft_service.queue.entities.refusal import Reason, Refusal, at_item, invalid, key_taken
from taskraft_service.queue.entities.task_state import FINISHED
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_limits import CapacityEstimate
from taskraft_service.queue.operations.put_plan import existing_task
from taskraft_service.queue.operations.selection import ByIds, ByKeys
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.updating import refusal_of_key


class NamedTasks:
    """Tasks that the operations of a batch change, and tasks that its puts depend on.

    A batch is refused if two operations change the same task, or if an operation changes a task
    that a put depends on. All operations can therefore be checked before the first is executed.
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
            return _refusal_of_named(task, "is named twice in one batch")
        self._named.add(place)
        return _named_and_awaited(task) if place in self._awaited else None

    def depend_on(self, task: QueueTask) -> Refusal | None:
        """Record that a put depends on a task; return why it cannot, or None."""
        place = (task.tube.number, task.id)
        self._awaited.add(place)
        return _named_and_awaited(task) if place in self._named else None


def _named_and_awaited(task: QueueTask) -> Refusal:
    return _refusal_of_named(task, "is depended on and named by another operation")


def _refusal_of_named(task: QueueTask, what: str) -> Refusal:
    return Refusal(
        Reason.INVALID_FIELD,
        f"task {task.id} of {task.tube.name!r} {what}",
        {"tube": task.tube.name, "task_id": str(task.id)},
    )


_PUT_TWICE: Final = Refusal(
    Reason.INVALID_FIELD, "a unique key is put twice in one batch", {"field": "unique_key"}
)


class KeyClaims:
    """Unique keys that the operations so far claim, and keys that they free.

    A later operation can claim a freed key. Each key is claimed at most once.
    """

    __slots__ = ("_freed", "_given", "_state")

    def __init__(self, state: QueueState) -> None:
        """Start without keys."""
        self._state = state
        self._given: set[tuple[int, tuple[str, ...]]] = set()
        self._freed: dict[tuple[int, tuple[str, ...]], int] = {}
        """For each freed key, the finished task that keeps the key until another task claims it; 0:
        none."""

    def free(self, task: QueueTask, *, is_kept: bool) -> None:
        """Record that an operation ends a task, which may have a key."""
        place = (task.tube.number, task.extras.unique_key)
        if task.extras.unique_key and self._state.unique_keys.find(*place) == task.id:
            self._freed[place] = task.id if is_kept else 0

    def put(self, tube: QueueTube, new: NewTask) -> QueueTask | Refusal | None:
        """Claim the key of a new task, if any; return the task that holds it, or a refusal.

        If a task is returned, the item is resolved to this task.
        """
        place = (tube.number, new.unique_key)
        kept = self._freed.get(place, 0)
        if kept and any(state in FINISHED for state in new.unique_among.states):
            return key_taken(kept)
        if new.unique_key and place not in self._freed:
            if place in self._given:
                return _PUT_TWICE
            self._given.add(place)
            existing = existing_task(self._state, tube, new, {})
            if isinstance(existing, Refusal):
                return existing
            there = self._state.find(tube, existing) if existing is not None else None
            if there is not None:
                return there
        self._give(place)
        return None

    def move(self, tube: QueueTube, key: tuple[str, ...]) -> Refusal | None:
        """Claim the key of a moved task in the target tube; return a refusal, or None."""
        place = (tube.number, key)
        if place not in self._freed:
            if place in self._given:
                return invalid(
                    "selector", "a unique key is claimed twice in one batch; name each key once", {}
                )
            refusal = refusal_of_key(self._state, tube, key)
            if refusal is not None:
                return refusal
        self._give(place)
        return None

    def _give(self, place: tuple[int, tuple[str, ...]]) -> None:
        self._freed.pop(place, None)
        self._given.add(place)

    def refusal_to_name(self, tube: QueueTube, selector: ByIds | ByKeys) -> Refusal | None:
        """Return a refusal if an earlier operation claims a key that names a task, or None."""
        for item, key in enumerate(selector.keys if isinstance(selector, ByKeys) else ()):
            if (tube.number, key) in self._given:
                text = "names a unique key that an earlier operation claims"
                return at_item(item, invalid("selector", text, {}))
        return None


class BatchDraft:
    """The operations of a batch so far, and the state in which they are executed later.

    Attributes:
        state: the state, which the checks do not change.
        tasks: the tasks that the operations name.
        keys: the unique keys that they claim and free.
        room: the capacity that they need, to be checked after the last operation.
        items: number of items of the puts that were checked.
        placed: the tasks of the puts that were executed.
    """

    __slots__ = ("items", "keys", "placed", "room", "state", "tasks")

    def __init__(self, state: QueueState) -> None:
        """Start without operations."""
        self.state = state
        self.tasks = NamedTasks()
        self.keys = KeyClaims(state)
        self.room = CapacityEstimate()
        self.items = 0
        self.placed: list[TaskReference] = []
