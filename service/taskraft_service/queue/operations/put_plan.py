"""Check the items of a put, and decide about each item before any of them has an effect.

Task ids are assigned in order, so the ids of new tasks are known in advance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.instants import after
from taskraft_service.queue.entities.new_task import NewTask, OnConflict, TaskReference
from taskraft_service.queue.entities.ownership import EVERYBODY, Ownership
from taskraft_service.queue.entities.refusal import (
    ItemRefusal,
    Refusal,
    key_taken,
    together,
    within,
)
from taskraft_service.queue.entities.retry_policy import refusal_of_retry
from taskraft_service.queue.entities.task_state import DELAYED, FINISHED, HELD, READY, TAKEN, State
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_driver import ArrivingTask
from taskraft_service.queue.entities.tube_limits import refusal_of_field
from taskraft_service.queue.operations.dependencies import Placed, resolved
from taskraft_service.queue.operations.task_creation import Conflict
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.updating import holder

_TIMED_ATTRIBUTES: Final = ("priority", "delay_ms", "ttl_ms", "ttr_ms", "visible_at_ms")
"""Attributes that only tubes with priorities and times support."""


def refusal_of_task(state: QueueState, tube: QueueTube, task: NewTask) -> Refusal | None:
    """Return why the kind of the tube or the task's group does not accept a task, or None."""
    wrong = together(list(_invalid_fields(tube, task)))
    if wrong is not None:
        return wrong
    refusal = state.groups.refusal_to_join(task.group) if task.group else None
    if refusal is None and tube.custom is not None:
        return state.quarantines.refusal_of(tube, arrival_of(state, tube, task), state.index)
    return refusal


def refusal_of_stored(state: QueueState, name: str, spec: bytes, path: str) -> Refusal | None:
    """Return why a stored task that is put later does not suit its tube, or None.

    A tube that does not exist yet is not checked; the later put is checked again.
    """
    tube = state.tubes.get(name)
    if tube is None or tube.rules.ignores_unsupported:
        return None
    wrong = together(list(_invalid_fields(tube, state.new_task(spec))))
    return None if wrong is None else within(wrong, f"{path}.")


def _invalid_fields(tube: QueueTube, task: NewTask) -> Iterator[Refusal]:
    """Yield the fields of a task that its tube does not support."""
    if task.subqueue and not tube.has_subqueues:
        yield refusal_of_field(tube, "subqueue", task.subqueue)
    if not tube.has_options:
        for field in _TIMED_ATTRIBUTES:
            given = getattr(task, field)
            if given is not None:
                yield refusal_of_field(tube, field, given)
    elif task.priority is not None:
        refusal = tube.refusal_of_priority("priority", task.priority)
        if refusal is not None:
            yield refusal
    if task.retry is not None:
        refusal = refusal_of_retry(task.retry, tube.options.dead_letter_tube, "retry")
        if refusal is not None:
            yield refusal


def arrival_of(state: QueueState, tube: QueueTube, task: NewTask) -> ArrivingTask:
    """Return the input of a tube driver for a task that is only checked."""
    priority = tube.options.priority if task.priority is None else task.priority
    now_ms = state.now_ms
    return ArrivingTask(0, priority, task.type, task.payload_bytes, 0, now_ms, 0, now_ms)


WAITING: Final = (HELD, READY, DELAYED)
"""States that a task can have directly after its put."""
NOT_WAITING: Final = (TAKEN, *FINISHED)
"""States in which a task cannot be replaced."""


class PutPlan:
    """Decides for each item whether to create a task, refuse the item, or use an existing task.

    Each decision takes the earlier items of the same put into account. ``ids`` has one id per item,
    0 for a refused item. ``new`` has the tasks to create, ``refused`` the refused items, and
    ``conflicts`` the items whose unique key belongs to an existing task. ``over_capacity`` has the
    refusals that may disappear when the tube has capacity again.
    """

    __slots__ = (
        "_is_limited",
        "_owner",
        "_payload_bytes",
        "_placed",
        "_planned",
        "_state",
        "_tube",
        "conflicts",
        "ids",
        "new",
        "over_capacity",
        "refused",
    )

    def __init__(
        self,
        state: QueueState,
        tube: QueueTube,
        before: Sequence[TaskReference],
        owner: Ownership = EVERYBODY,
        *,
        is_limited: bool,
    ) -> None:
        """Start without items; ``is_limited``: the capacity of the tube is checked."""
        self._state = state
        self._tube = tube
        self._is_limited = is_limited
        self._owner = owner
        self._payload_bytes = 0
        """Growth of the tube by the planned items, in bytes."""
        self._planned: dict[tuple[str, ...], int] = {}
        """Unique keys that items of this put claim, with the ids of their tasks."""
        self.ids: list[int] = []
        self.new: list[NewTask] = []
        self.refused: list[ItemRefusal] = []
        self.conflicts: list[Conflict] = []
        self.over_capacity: list[Refusal] = []
        self._placed = Placed(before, tube.name, self.ids)

    def add(self, item: NewTask) -> None:
        """Decide about the next item."""
        task = self._validated(item)
        if isinstance(task, Refusal):
            self._refuse(task)
            return
        existing = None
        if task.unique_key:
            existing = existing_task(self._state, self._tube, task, self._planned)
        if isinstance(existing, Refusal):
            self._refuse(existing)
        elif existing is not None:
            self._resolve_conflict(Conflict(len(self.ids), existing, task))
        else:
            self._accept(task)

    def restarting(self) -> Collection[TaskReference]:
        """Return the existing tasks that items of this put restart or replace."""
        return {
            TaskReference(self._tube.name, conflict.task_id)
            for conflict in self.conflicts
            if self._changes(conflict)
        }

    def _validated(self, task: NewTask) -> NewTask | Refusal:
        """Return the task with resolved dependencies, or why it cannot be put."""
        refusal = refusal_of_task(self._state, self._tube, task)
        if refusal is not None:
            return refusal
        if task.dependencies is None:
            return task
        dependencies = resolved(self._state, task.dependencies, self._placed)
        if isinstance(dependencies, Refusal):
            return dependencies
        return replace(task, dependencies=dependencies)

    def _refuse(self, refusal: Refusal) -> None:
        self.refused.append(ItemRefusal(len(self.ids), refusal))
        self.ids.append(0)

    def _has_capacity(self, tasks: int, more_bytes: int) -> bool:
        """Return whether the tube can grow by these tasks and bytes; otherwise refuse the item."""
        refusal = self._tube.refusal_to_grow(tasks, more_bytes) if self._is_limited else None
        if refusal is None:
            return True
        self.over_capacity.append(refusal)
        self._refuse(refusal)
        return False

    def _accept(self, task: NewTask) -> None:
        """Plan a new task, if the tube has capacity for it."""
        payload_bytes = self._payload_bytes + task.payload_bytes
        if not self._has_capacity(len(self.new) + 1, payload_bytes):
            return
        self._payload_bytes = payload_bytes
        task_id = self._tube.next_id + len(self.new)
        if task.unique_key:
            self._planned[task.unique_key] = task_id
        self.new.append(task)
        self.ids.append(task_id)

    def _resolve_conflict(self, conflict: Conflict) -> None:
        """Resolve an item whose unique key belongs to an existing task or to an earlier item.

        The item is refused if replacing the task's payload would exceed the tube's capacity, or if
        the item would change the task of another principal.
        """
        task = conflict.new
        refusal = self._refusal_of_owner(conflict)
        if refusal is not None:
            self._refuse(refusal)
            return
        more = self._growth(conflict)
        if more > 0 and not self._has_capacity(0, self._payload_bytes + more):
            return
        self._payload_bytes += more
        place = conflict.task_id - self._tube.next_id
        if place >= 0 and task.on_conflict is OnConflict.REPLACE_IF_WAITING:
            earlier = self.new[place]
            self.new[place] = replace(task, dependencies=earlier.dependencies, group=earlier.group)
        if self._changes(conflict):
            self._planned[task.unique_key] = conflict.task_id
        self.ids.append(conflict.task_id)
        self.conflicts.append(conflict)

    def _refusal_of_owner(self, conflict: Conflict) -> Refusal | None:
        """Return why the item may not change the existing task; None for a task of this put."""
        there = self._state.find(self._tube, conflict.task_id)
        return None if there is None else refusal_of_owner(self._owner, there, conflict.new)

    def _changes(self, conflict: Conflict) -> bool:
        """Return whether the item restarts or replaces the existing task."""
        there = self._state.find(self._tube, conflict.task_id)
        return changes(conflict.new, None if there is None else there.state)

    def _growth(self, conflict: Conflict) -> int:
        """Return the bytes that an item adds to the existing task; negative if the task shrinks."""
        if conflict.new.on_conflict is not OnConflict.REPLACE_IF_WAITING:
            return 0
        place = conflict.task_id - self._tube.next_id
        there = self.new[place] if place >= 0 else self._state.find(self._tube, conflict.task_id)
        return 0 if there is None else conflict.new.payload_bytes - there.payload_bytes


def changes(new: NewTask, state: State | None) -> bool:
    """Return whether a new task restarts or replaces the task with its key, which has a state.

    ``state``: None for a task of the same put.
    """
    if new.on_conflict is OnConflict.RESTART_IF_FINISHED:
        return state in FINISHED
    return new.on_conflict is OnConflict.REPLACE_IF_WAITING


def refusal_of_owner(owner: Ownership, there: QueueTask, new: NewTask) -> Refusal | None:
    """Return why a put may not change the task of another principal with the same key, or None."""
    if owner.changes_all or not changes(new, there.state):
        return None
    return owner.refusal_to_change(there.extras.owner or "", "the task with this key")


def existing_task(
    queue_state: QueueState, tube: QueueTube, task: NewTask, planned: Mapping[tuple[str, ...], int]
) -> int | Refusal | None:
    """Return the id of the task with the key, a refusal if the item cannot use it, or None."""
    task_id = planned.get(task.unique_key)
    if task_id is not None:
        if not any(state in WAITING for state in task.unique_among.states):
            return None
        if task.on_conflict is OnConflict.FAIL:
            return key_taken(task_id)
        return task_id
    there = holder(queue_state, tube, task.unique_key)
    if there is None or not _stands_in_the_way(there, task, queue_state.now_ms):
        return None
    if task.on_conflict is OnConflict.FAIL:
        return key_taken(there.id)
    if task.on_conflict is OnConflict.REPLACE_IF_WAITING and there.state in NOT_WAITING:
        return key_taken(there.id)
    return there.id


def _stands_in_the_way(there: QueueTask, task: NewTask, now_ms: int) -> bool:
    """Return whether the state and age of a task with the same key block a new task.

    A finished task always blocks an item that would restart it.
    """
    among = task.unique_among
    restarts = task.on_conflict is OnConflict.RESTART_IF_FINISHED and there.state in FINISHED
    return (restarts or there.state in among.states) and now_ms < after(there.created_ms, among.ms)
