"""Create tasks that set attributes of their own; ``put`` creates plain tasks itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from taskraft_service.queue.entities.group import GroupState
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.new_task import NewTask, TaskReference
from taskraft_service.queue.entities.task_view import Extras
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_limits import effective_options
from taskraft_service.queue.operations.dependencies import join_dependents
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.transitions.updating import claim

PUT: Final = Operation.PUT


def create_with_attributes(
    state: QueueState,
    tube: QueueTube,
    new_tasks: Sequence[NewTask],
    restarting: Collection[TaskReference],
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
        if run and new.dependencies is not None:  # the task may depend on an earlier one of the run
            transition(state, tube, run, operation)
            run = []
        if _has_extras(new) and _give_extras(state, task, new, restarting):
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
    state: QueueState, task: QueueTask, new: NewTask, restarting: Collection[TaskReference]
) -> bool:
    """Set the extras of a new task; return whether its group or a dependency holds it."""
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
    )
    if new.unique_key:
        claim(state, task.tube, new.unique_key, task.id)
    return waiting is not None or (group is not None and group.state is GroupState.HELD)
