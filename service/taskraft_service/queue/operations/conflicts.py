"""Apply the conflict policy of a put to the task that already has the unique key."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.new_task import NewTask, OnConflict
from taskraft_service.queue.entities.task_state import BURIED, FINISHED
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_limits import effective_options
from taskraft_service.queue.operations.admin import restart_one
from taskraft_service.queue.operations.dependencies import waiting_of
from taskraft_service.queue.state.queue_state import Edited, QueueState
from taskraft_service.queue.transitions.transition import leave_order, transition
from taskraft_service.queue.transitions.updating import replace_body


class Conflict(NamedTuple):
    """An item of a put whose unique key belongs to an existing task."""

    place: int
    task_id: int
    new: NewTask


def settle_conflict(state: QueueState, tube: QueueTube, conflict: Conflict) -> None:
    """Restart or replace the existing task, if the item asks for it."""
    task = state.find(tube, conflict.task_id)
    assert task is not None, f"tube {tube.number} has no task {conflict.task_id}"
    new = conflict.new
    if new.on_conflict is OnConflict.REPLACE_IF_WAITING:
        _replace(state, task, new)
    elif new.on_conflict is OnConflict.RESTART_IF_FINISHED and task.state in FINISHED:
        restart_one(state, task, max(new.delay_ms or 0, 0))


def _replace(state: QueueState, task: QueueTask, new: NewTask) -> None:
    """Replace a waiting task by the new one; the task keeps its id, group and dependencies.

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
        task.attempt = 0
    is_delayed = terms.operation is Operation.PUT_DELAYED
    operation = Operation.REPLACE_DELAYED if is_delayed else Operation.REPLACE
    transition(state, task.tube, (task,), operation)
