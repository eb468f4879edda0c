"""Register new tasks as dependents, and notify dependents of ended and buried dependencies.

A task can depend on existing tasks, and on earlier items of the same put or batch. A reference to a
missing task is refused, because its outcome is unknown. A task leaves HELD when each dependency has
ended or was buried. A buried task makes no progress by itself, so it has failed for its dependents,
also for tasks that are put while it is buried. A later kick does not notify them again.

A task can have many dependents, and one failure can end a chain of tasks. Each entry
therefore notifies a bounded number of dependents, in the order in which the dependencies ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from taskraft_service.queue.entities.event_cause import failure_cause
from taskraft_service.queue.entities.instants import NEVER_MS, after
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.new_task import (
    Dependencies,
    ItemReference,
    NewTask,
    TaskReference,
)
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_state import BURIED, FINISHED, HELD, TaskOutcome
from taskraft_service.queue.entities.task_view import Awaited, Failure, OnDependencyFailure, Waiting
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.state.dependents import TaskEnding
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import refusal_of_target
from taskraft_service.queue.store.indexes import SetMember
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import unhold_if_clear


class Placed(NamedTuple):
    """Tube and id of the tasks of earlier items of a put or batch; id 0: the item was refused.

    ``before`` has the tasks of earlier puts of the batch, ``ids`` the task ids of the current put.
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
    """Return the refusal of a reference to a refused or later item."""
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

    A buried dependency is open until `settle_dependents` notifies the new task, after the command.
    One of several buried dependencies stands for all.

    Args:
        state: the state of the queue, with the tasks that the new task depends on.
        task: the new task.
        new: the task as it was put, with resolved dependencies.
        restarting: finished and buried tasks that the same put restarts or replaces.
    """
    assert new.dependencies is not None
    member = (task.tube.number, task.id)
    still_open: list[Awaited] = []
    buried: QueueTask | None = None
    for reference in new.dependencies.on:
        assert isinstance(reference, TaskReference), "dependencies were not resolved"
        other = state.find(state.tubes[reference.tube], reference.id)
        assert other is not None, f"there is no task {reference}"
        is_restarting = reference in restarting
        if other.state is BURIED and not is_restarting:
            buried = other
        elif is_restarting or other.state not in FINISHED:
            still_open.append(_join(state, other, member))
    if buried is not None:
        still_open.append(_join(state, buried, member))
        state.dependents.ended(buried, TaskOutcome.BURIED_OUT)
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
    """Return the open dependencies of a task; its delay starts after the last dependency ends.

    If the producer set an absolute time, the task cannot be taken before this time.
    """
    delay_ms = task.tube.options.delay_ms if new.delay_ms is None else new.delay_ms
    named_ms = new.visible_at_ms
    task.visible_at_ms = NEVER_MS if named_ms is None else named_ms - state.wall_offset_ms
    return Waiting(still_open, on_failure, max(delay_ms, 0))


def _join(state: QueueState, task: QueueTask, member: SetMember) -> Awaited:
    """Add a dependent to the set of a task, and return the open dependency."""
    if not task.extras.dependents:
        state.touch_task(task)
        task.extras = replace(task.extras, dependents=state.dependents.new_set())
    number = task.extras.dependents
    state.dependents.members.add(number, member)
    return Awaited(number, task.tube.name, task.id)


FAILURE_TYPE: Final = "DEPENDENCY_FAILED"


def settle_dependents(state: QueueState, tasks_max: int) -> int:
    """Notify the dependents of ended and buried tasks; return the number of notifications.

    Each notification can end the dependent, and so complete its group; the caller settles these
    groups. One call sends at most ``tasks_max`` notifications, and the next call continues.
    """
    dependents = state.dependents
    done = 0
    while dependents.has_endings and done < tasks_max:
        ending = dependents.oldest()
        room = tasks_max - done
        members = dependents.untold(ending, room)
        if len(members) < room:
            dependents.tell_last(ending, members)
        else:
            dependents.tell(ending, members)
        for member in members:
            tube = state.tubes.by_number.get(member[0])
            task = state.find(tube, member[1]) if tube is not None else None
            if task is not None:  # None: its tube was truncated or dropped
                _hear(state, task, ending)
        done += max(len(members), 1)
    state.steps.left -= done
    return done


def _hear(state: QueueState, task: QueueTask, ending: TaskEnding) -> None:
    """Update a held task after one of its dependencies has ended or was buried."""
    waiting = task.extras.waiting
    assert task.state is HELD
    assert waiting is not None
    still_open = tuple(one for one in waiting.open if one.number != ending.number)
    state.touch_task(task)
    rest = replace(waiting, open=still_open) if still_open else None
    if ending.outcome is TaskOutcome.PROCESSED:
        task.extras = replace(task.extras, waiting=rest)
    else:
        place = f"{ending.tube}/{ending.id}"
        failure = Failure(FAILURE_TYPE, f"{place}: {ending.outcome.name}")
        task.extras = replace(task.extras, waiting=rest, failure=failure)
        if waiting.on_failure is OnDependencyFailure.CANCEL:
            operation = Operation.DEPENDENCY_FAILED
            cause = failure_cause(failure, target=place)
            end(state, task, operation, TaskOutcome.DEPENDENCY_FAILED, cause=cause)
            return
    if not still_open:
        _begin_delay(state, task, waiting)
        unhold_if_clear(
            state, task, Operation.DEPENDENCIES_DONE, Operation.DEPENDENCIES_DONE_DELAYED
        )


def _begin_delay(state: QueueState, task: QueueTask, waiting: Waiting) -> None:
    """Start the delay of a task now; an absolute time of the producer may prolong the delay."""
    if waiting.delay_ms <= 0:
        return
    due_ms = min(after(state.now_ms, waiting.delay_ms), NEVER_MS - 1)
    named_ms = task.visible_at_ms if task.visible_at_ms < NEVER_MS else due_ms
    task.visible_at_ms = max(due_ms, named_ms)
