"""Create tasks that set attributes, and restart or replace tasks with the same unique key.

``put`` creates plain tasks itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from taskraft_service.queue.entities.group import GroupState
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.new_task import NewTask, OnConflict, TaskReference
from taskraft_service.queue.entities.task_state import BURIED, FINISHED
from taskraft_service.queue.entities.task_view import Extras
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_limits import effective_options
from taskraft_service.queue.operations.admin import restart_one
from taskraft_service.queue.operations.dependencies import join_dependents, waiting_of
from taskraft_service.queue.operations.releasing import forget_attempts
from taskraft_service.queue.state.content_work import Edited
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.transitions.updating import claim, replace_body

PUT: Final = Operation.PUT


def create_with_attributes(
    state: QueueState,
    tube: QueueTube,
    new_tasks: Sequence[NewTask],
    restarting: Collection[TaskReference],
    owner: str = "",
) -> None:
    """Create tasks, in runs that become READY, DELAYED or HELD."""
    now_ms, wall_ms = state.now_ms, state.wall_ms
    run: list[QueueTask] = []
    operation = PUT
    for new in new_tasks:
        terms = effective_options(tube, new, now_ms, wall_ms)
        body, size = new.body, new.payload_bytes
        task = QueueTask(tube, tube.next_id, terms, now_ms, body, size, new.type, new.subqueue)
        tube.next_id += 1
        own_operation = terms.operation
        if run and new.dependencies is not None:  # a dependency may be in the run
            transition(state, tube, run, operation)
            run = []
        if _has_extras(new) and _give_extras(state, task, new, restarting, owner):
            own_operation = Operation.PUT_HELD
        if run and own_operation is not operation:
            transition(state, tube, run, operation)
            run = []
        operation = own_operation
        run.append(task)
    if run:
        transition(state, tube, run, operation)


def _has_extras(new: NewTask) -> bool:
    """Return whether a new task has an attribute that is stored in its extras."""
    return (
        new.retry is not None or bool(new.group or new.unique_key) or new.dependencies is not None
    )


def _give_extras(
    state: QueueState,
    task: QueueTask,
    new: NewTask,
    restarting: Collection[TaskReference],
    owner: str,
) -> bool:
    """Set the extras of a new task; return whether a group or a dependency holds the task."""
    group = state.groups.get(new.group) if new.group else None
    number = group.number if group is not None else 0
    waiting = None
    if new.dependencies is not None:
        waiting = join_dependents(state, task, new, restarting)
    task.extras = Extras(
        retry=new.retry,
        group=new.group,
        group_number=number,
        unique_key=new.unique_key,
        waiting=waiting,
        owner=owner if owner and new.unique_key else None,
    )
    if new.unique_key:
        claim(state, task.tube, new.unique_key, task.id)
    return waiting is not None or (group is not None and group.state is GroupState.HELD)


class Conflict(NamedTuple):
    """An item of a put whose unique key belongs to an existing task."""

    place: int
    task_id: int
    new: NewTask


def settle_conflict(state: QueueState, tube: QueueTube, conflict: Conflict) -> None:
    """Restart or replace the existing task, according to ``on_conflict`` of the new item."""
    task = state.find(tube, conflict.task_id)
    assert task is not None, f"tube {tube.number} has no task {conflict.task_id}"
    new = conflict.new
    if new.on_conflict is OnConflict.REPLACE_IF_WAITING:
        _replace(state, task, new)
    elif new.on_conflict is OnConflict.RESTART_IF_FINISHED and task.state in FINISHED:
        restart_one(state, task, max(new.delay_ms or 0, 0))


def _replace(state: QueueState, task: QueueTask, new: NewTask) -> None:
    """Replace the attributes of a waiting task; the task keeps its id, group and dependencies.

    A buried task becomes READY or DELAYED, and its attempts start again at 0.
    """
    leave_order(task)
    terms = effective_options(task.tube, new, state.now_ms, state.wall_ms)
    replace_body(state, task, Edited(new.body, new.payload_bytes))
    task.type, task.subqueue = new.type, new.subqueue
    task.order = (terms.lane, terms.rank, task.id)
    task.priority, task.ttl_ms, task.ttr_ms = terms.priority, terms.ttl_ms, terms.ttr_ms
    task.visible_at_ms, task.expire_at_ms = terms.visible_at_ms, terms.expire_at_ms
    if task.extras.retry != new.retry:
        task.extras = replace(task.extras, retry=new.retry)
    if task.extras.waiting is not None:
        before = task.extras.waiting
        waiting = waiting_of(state, task, new, before.open, before.on_failure)
        task.extras = replace(task.extras, waiting=waiting)
    if task.state is BURIED:
        forget_attempts(task)
    is_delayed = terms.operation is Operation.PUT_DELAYED
    operation = Operation.REPLACE_DELAYED if is_delayed else Operation.REPLACE
    transition(state, task.tube, (task,), operation)
