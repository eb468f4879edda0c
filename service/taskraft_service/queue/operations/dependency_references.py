"""Check what a new task depends on, and let it wait for what of that has not ended.

A task depends on tasks that are there, or on items of the same put or batch before it. Whoever
names a task that is gone cannot know whether it ended well, so that is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from taskraft_service.queue.entities.dependencies import (
    Awaited,
    Dependencies,
    ItemReference,
    OnDependencyFailure,
    TaskReference,
    Waiting,
)
from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.life_cycle import FINISHED
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target


class Placed(NamedTuple):
    """Where the items before one are: in a tube, by id; id 0: the item was refused.

    ``before`` are those of earlier puts of a batch, ``ids`` those of the same put.
    """

    before: Sequence[TaskReference]
    tube: str
    ids: Sequence[int]

    def find(self, item: int) -> TaskReference | None:
        """Return the task of an item, or None: it comes later, or was refused."""
        if 0 <= item < len(self.before):
            return self.before[item]
        place = item - len(self.before)
        if 0 <= place < len(self.ids) and self.ids[place]:
            return TaskReference(self.tube, self.ids[place])
        return None


def resolved(
    ledger: QueueState, dependencies: Dependencies, placed: Placed
) -> Dependencies | Refusal:
    """Return dependencies with the tasks of all items, or why one of them cannot be."""
    found: dict[TaskReference, None] = {}
    for place, reference in enumerate(dependencies.on):
        if isinstance(reference, ItemReference):
            task = placed.find(reference.item)
            if task is None:
                return no_item(place, reference)
            found[task] = None
        else:
            refusal = refusal_of_reference(ledger, place, reference)
            if refusal is not None:
                return refusal
            found[reference] = None
    return replace(dependencies, on=tuple(found))


def refusal_of_reference(
    ledger: QueueState, place: int, reference: TaskReference
) -> Refusal | None:
    """Return why a task cannot be depended on, or None."""
    field = f"depends_on[{place}]"
    refusal = refusal_of_target(ledger, reference.tube, f"{field}.task.tube")
    if refusal is not None:
        return refusal
    tube = ledger.tubes.get(reference.tube)
    if tube is not None and ledger.find(tube, reference.id) is not None:
        return None
    return Refusal(
        Reason.DEPENDENCY_NOT_FOUND,
        f"{field}: there is no task {reference.tube}/{reference.id}, or not any more",
        {"field": field, "tube": reference.tube, "task_id": str(reference.id)},
    )


def no_item(place: int, reference: ItemReference) -> Refusal:
    """Say that an item that is depended on is none of those before."""
    field = f"depends_on[{place}]"
    return Refusal(
        Reason.DEPENDENCY_NOT_FOUND,
        f"{field}: item {reference.item} was refused, or is not before this one",
        {"field": field, "item": str(reference.item)},
    )


def join_dependents(
    ledger: QueueState, task: QueueTask, new: NewTask, restarting: Collection[TaskReference]
) -> Waiting | None:
    """Let a new task wait for what it depends on; return what it waits for, or None: for nothing.

    Args:
        ledger: has the tasks.
        task: the new task.
        new: as it was put; its dependencies are resolved.
        restarting: tasks that are finished still, but begin anew with the same put.
    """
    assert new.dependencies is not None
    member = (task.tube.number, task.id)
    still_open: list[Awaited] = []
    for reference in new.dependencies.on:
        assert isinstance(reference, TaskReference), "dependencies were not resolved"
        other = ledger.find(ledger.tubes[reference.tube], reference.id)
        assert other is not None, f"there is no task {reference}"
        if other.state in FINISHED and reference not in restarting:
            continue
        number = _set_of(ledger, other)
        ledger.dependents.members.add(number, member)
        still_open.append(Awaited(number, reference.tube, reference.id))
    if not still_open:
        return None
    return waiting_of(task, new, tuple(still_open), new.dependencies.on_failure)


def waiting_of(
    task: QueueTask, new: NewTask, still_open: tuple[Awaited, ...], on_failure: OnDependencyFailure
) -> Waiting:
    """Return how a task waits whose delay begins when it waits no more.

    Until then a time that its producer names is the earliest at which it may be taken.
    """
    delay_ms = task.tube.options.delay_ms if new.delay_ms is None else new.delay_ms
    task.visible_at_ms = NEVER_MS if new.visible_at_ms is None else new.visible_at_ms
    return Waiting(still_open, on_failure, max(delay_ms, 0))


def _set_of(ledger: QueueState, task: QueueTask) -> int:
    """Return the number of the set of tasks that wait for one; found it if there is none."""
    if not task.extras.dependents:
        ledger.touch_task(task)
        task.extras = replace(task.extras, dependents=ledger.dependents.new_set())
    return task.extras.dependents
