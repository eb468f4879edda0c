"""Check the dependencies of a new task, and register it as a dependent.

A task can depend on existing tasks, and on earlier items of the same put or batch. A reference to a
missing task is refused, because its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    TaskReference,
)
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_state import FINISHED
from taskraft_service.queue.entities.task_view import Awaited, OnDependencyFailure, Waiting
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target


class Placed(NamedTuple):
    """Tasks of the earlier items of a put or batch, by tube and id; id 0: the item was refused.

    ``before`` has the tasks of earlier puts of a batch, ``ids`` the ids of the same put.
    """

    before: Sequence[TaskReference]
    tube: str
    ids: Sequence[int]

    def find(self, item: int) -> TaskReference | None:
        """Return the task of an item, or None if the item is later or was refused."""
        if 0 <= item < len(self.before):
            return self.before[item]
        place = item - len(self.before)
        if 0 <= place < len(self.ids) and self.ids[place]:
            return TaskReference(self.tube, self.ids[place])
        return None


def resolved(
    state: QueueState, dependencies: Dependencies, placed: Placed
) -> Dependencies | Refusal:
    """Return dependencies whose item references are replaced by tasks, or a refusal."""
    found: dict[TaskReference, None] = {}
    for place, reference in enumerate(dependencies.on):
        if isinstance(reference, ItemReference):
            task = placed.find(reference.item)
            if task is None:
                return no_item(place, reference)
            found[task] = None
        else:
            refusal = refusal_of_reference(state, place, reference)
            if refusal is not None:
                return refusal
            found[reference] = None
    return replace(dependencies, on=tuple(found))


def refusal_of_reference(state: QueueState, place: int, reference: TaskReference) -> Refusal | None:
    """Return why a task cannot be a dependency, or None."""
    field = f"depends_on[{place}]"
    refusal = refusal_of_target(state, reference.tube, f"{field}.task.tube")
    if refusal is not None:
        return refusal
    tube = state.tubes.get(reference.tube)
    if tube is not None and state.find(tube, reference.id) is not None:
        return None
    return Refusal(
        Reason.DEPENDENCY_NOT_FOUND,
        f"{field}: task {reference.tube}/{reference.id} does not exist; it may have ended",
        {"field": field, "tube": reference.tube, "task_id": str(reference.id)},
    )


def no_item(place: int, reference: ItemReference) -> Refusal:
    """Return the refusal of a reference to an item that is not an earlier one."""
    field = f"depends_on[{place}]"
    return Refusal(
        Reason.DEPENDENCY_NOT_FOUND,
        f"{field}: item {reference.item} was refused or is not an earlier item",
        {"field": field, "item": str(reference.item)},
    )


def join_dependents(
    state: QueueState, task: QueueTask, new: NewTask, restarting: Collection[TaskReference]
) -> Waiting | None:
    """Register a new task as a dependent; return its open dependencies, or None.

    Args:
        state: has the tasks.
        task: the new task.
        new: the task as it was put, with resolved dependencies.
        restarting: finished tasks that the same put restarts.
    """
    assert new.dependencies is not None
    member = (task.tube.number, task.id)
    still_open: list[Awaited] = []
    for reference in new.dependencies.on:
        assert isinstance(reference, TaskReference), "dependencies were not resolved"
        other = state.find(state.tubes[reference.tube], reference.id)
        assert other is not None, f"there is no task {reference}"
        if other.state in FINISHED and reference not in restarting:
            continue
        number = _set_of(state, other)
        state.dependents.members.add(number, member)
        still_open.append(Awaited(number, reference.tube, reference.id))
    if not still_open:
        return None
    return waiting_of(state, task, new, tuple(still_open), new.dependencies.on_failure)


def waiting_of(
    state: QueueState,
    task: QueueTask,
    new: NewTask,
    still_open: tuple[Awaited, ...],
    on_failure: OnDependencyFailure,
) -> Waiting:
    """Return the open dependencies of a task; its delay starts after the last of them ends.

    An absolute time of the producer stays the earliest time at which the task can be taken.
    """
    delay_ms = task.tube.options.delay_ms if new.delay_ms is None else new.delay_ms
    named_ms = new.visible_at_ms
    task.visible_at_ms = NEVER_MS if named_ms is None else named_ms - state.wall_offset_ms
    return Waiting(still_open, on_failure, max(delay_ms, 0))


def _set_of(state: QueueState, task: QueueTask) -> int:
    """Return the number of the set of dependents of a task; create the set if needed."""
    if not task.extras.dependents:
        state.touch_task(task)
        task.extras = replace(task.extras, dependents=state.dependents.new_set())
    return task.extras.dependents
