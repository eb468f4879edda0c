"""Decide what becomes of the items of a put, before any of them has an effect.

Ids are given in order to what is new, so they are known beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from service.queue.commands import ItemRefusal, OnConflict, Refusal, TaskReference
from service.queue.dependencies.references import Placed, resolved
from service.queue.driver import Arrival
from service.queue.instants import after
from service.queue.life_cycle import DELAYED, FINISHED, HELD, READY, TAKEN
from service.queue.refusals import (
    invalid,
    key_taken,
    means_nothing,
    refused_by_driver,
    together,
    within,
)
from service.queue.tasks.uniqueness import Conflict, holder
from service.queue.tubes.option_checks import retry_violations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from service.queue.commands import NewTask
    from service.queue.ledger import Ledger
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube


_TIMED_WISHES: Final = ("priority", "delay_ms", "ttl_ms", "ttr_ms", "visible_at_ms")
"""What only tasks of tubes with priorities and times may wish for."""
WAITING: Final = (HELD, READY, DELAYED)
"""States that a task may have right after its put."""
NOT_WAITING: Final = (TAKEN, *FINISHED)
"""States in which a task cannot be replaced."""


class Intake(NamedTuple):
    """The items sorted out: an id for each (0: refused), what is new, refused, or there already.

    ``without_room``: the refusals for which waiting might help.
    """

    ids: list[int]
    new: list[NewTask]
    refused: list[ItemRefusal]
    conflicts: list[Conflict]
    without_room: list[Refusal]

    def restarting(self, tube: Tube) -> Collection[TaskReference]:
        """Return the tasks there already that begin anew if they are finished."""
        return {
            TaskReference(tube.name, conflict.task_id)
            for conflict in self.conflicts
            if conflict.new.on_conflict is OnConflict.RESTART_IF_FINISHED
        }


def sort_out(
    ledger: Ledger,
    tube: Tube,
    tasks: Sequence[NewTask],
    before: Sequence[TaskReference] = (),
    *,
    is_limited: bool,
) -> Intake:
    """Sort out the items in order; each sees what those before it will have done.

    ``before`` are the items of earlier puts of the same batch.
    """
    intake = Intake([], [], [], [], [])
    planned: dict[tuple[str, ...], int] = {}
    """Keys that items of this put will have brought into use, with the ids of their tasks."""
    payload_bytes = 0
    placed = Placed(before, tube.name, intake.ids)
    for place, wished in enumerate(tasks):
        task, refusal = _judged(ledger, tube, wished, placed)
        existing = None
        if refusal is None and task.unique_key:
            existing = existing_task(ledger, tube, task, planned)
            if isinstance(existing, int):
                more = _growth(ledger, tube, intake, Conflict(place, existing, task))
                is_over = is_limited and more > 0
                refusal = tube.full(0, payload_bytes + more) if is_over else None
                if refusal is None:
                    payload_bytes += more
                    _meet(tube, intake, Conflict(place, existing, task), planned)
                    continue
                intake.without_room.append(refusal)
            else:
                refusal = existing
        if refusal is None and is_limited:
            refusal = tube.full(len(intake.new) + 1, payload_bytes + task.payload_bytes)
            if refusal is not None:
                intake.without_room.append(refusal)
        if refusal is not None:
            intake.refused.append(ItemRefusal(place, refusal))
            intake.ids.append(0)
            continue
        task_id = tube.next_id + len(intake.new)
        if task.unique_key:
            planned[task.unique_key] = task_id
        payload_bytes += task.payload_bytes
        intake.new.append(task)
        intake.ids.append(task_id)
    return intake


def _judged(
    ledger: Ledger, tube: Tube, task: NewTask, placed: Placed
) -> tuple[NewTask, Refusal | None]:
    """Return a task with what it depends on found, and why it cannot be put, or None."""
    refusal = unsuitable(ledger, tube, task)
    if refusal is not None or task.dependencies is None:
        return task, refusal
    dependencies = resolved(ledger, task.dependencies, placed)
    if isinstance(dependencies, Refusal):
        return task, dependencies
    return replace(task, dependencies=dependencies), None


def existing_task(
    ledger: Ledger, tube: Tube, task: NewTask, planned: Mapping[tuple[str, ...], int]
) -> int | Refusal | None:
    """Return the task that stands in for a new one, why neither may be, or None: put it."""
    task_id = planned.get(task.unique_key)
    if task_id is not None:
        if not any(state in WAITING for state in task.unique_among.states):
            return None
        if task.on_conflict is OnConflict.FAIL:
            return key_taken(task_id)
        return task_id
    there = holder(ledger, tube, task.unique_key)
    if there is None or not _stands_in_the_way(there, task, ledger.now_ms):
        return None
    if task.on_conflict is OnConflict.FAIL:
        return key_taken(there.id)
    if task.on_conflict is OnConflict.REPLACE_IF_WAITING and there.state in NOT_WAITING:
        return key_taken(there.id)
    return there.id


def _stands_in_the_way(there: Task, task: NewTask, now_ms: int) -> bool:
    """Tell whether a task with the key of a new one counts, by its state and its age.

    One that is finished always counts for a producer who would restart it.
    """
    among = task.unique_among
    restarts = task.on_conflict is OnConflict.RESTART_IF_FINISHED and there.state in FINISHED
    return (restarts or there.state in among.states) and now_ms < after(there.created_ms, among.ms)


def _growth(ledger: Ledger, tube: Tube, intake: Intake, conflict: Conflict) -> int:
    """Return how many bytes an item adds to the task that it meets; negative: it takes some."""
    if conflict.new.on_conflict is not OnConflict.REPLACE_IF_WAITING:
        return 0
    place = conflict.task_id - tube.next_id
    there = intake.new[place] if place >= 0 else ledger.find(tube, conflict.task_id)
    return 0 if there is None else conflict.new.payload_bytes - there.payload_bytes


def _meet(
    tube: Tube,
    intake: Intake,
    conflict: Conflict,
    planned: dict[tuple[str, ...], int],
) -> None:
    """Note that an item meets a task, which may be one of this put."""
    task = conflict.new
    place = conflict.task_id - tube.next_id
    if place >= 0 and task.on_conflict is OnConflict.REPLACE_IF_WAITING:
        earlier = intake.new[place]
        intake.new[place] = replace(task, dependencies=earlier.dependencies, group=earlier.group)
    planned[task.unique_key] = conflict.task_id
    intake.ids.append(conflict.task_id)
    intake.conflicts.append(conflict)


def unsuitable(ledger: Ledger, tube: Tube, task: NewTask) -> Refusal | None:
    """Return why a task is not for this kind of tube, or not for its group, or None."""
    wrong = together(list(_invalid_fields(tube, task)))
    if wrong is not None:
        return wrong
    refusal = ledger.groups.refusal_to_join(task.group) if task.group else None
    if refusal is None and tube.custom is not None:
        return refused_by_driver(tube, _arrival_of(ledger, tube, task))
    return refusal


def refusal_of_stored(ledger: Ledger, name: str, spec: bytes, path: str) -> Refusal | None:
    """Return what a task that is kept, to be put later, may not say in its tube, or None.

    The tube need not exist yet: then the put finds out.
    """
    tube = ledger.tubes.get(name)
    if tube is None or tube.rules.ignores_unsuitable:
        return None
    wrong = together(list(_invalid_fields(tube, ledger.new_task(spec))))
    return None if wrong is None else within(wrong, f"{path}.")


def _invalid_fields(tube: Tube, task: NewTask) -> Iterator[Refusal]:
    """Yield all that a task may not say in this tube."""
    if task.subqueue and not tube.has_subqueues:
        yield means_nothing(tube, "subqueue", task.subqueue)
    if not tube.has_options:
        for field in _TIMED_WISHES:
            wish = getattr(task, field)
            if wish is not None:
                yield means_nothing(tube, field, wish)
    elif task.priority is not None:
        refusal = tube.priority_refusal("priority", task.priority)
        if refusal is not None:
            yield refusal
    if task.retry is not None:
        for field, text in retry_violations(task.retry, tube.options.dead_letter_tube):
            yield invalid(f"retry.{field}", text, {})


def _arrival_of(ledger: Ledger, tube: Tube, task: NewTask) -> Arrival:
    """Return what a driver may know of a task that is only being judged."""
    priority = tube.options.priority if task.priority is None else task.priority
    now_ms = ledger.now_ms
    return Arrival(0, priority, task.type, task.payload_bytes, 0, now_ms, 0, now_ms)
