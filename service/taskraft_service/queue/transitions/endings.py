"""End and bury tasks, and update everything that depends on the end of a task.

A task ends once: it is acknowledged (also where it is kept), fails for good, expires or is deleted.
``end`` notifies the dependents of the task, stores its failure, and calls ``QueueState.watcher``.
A buried task has not ended, but makes no progress by itself. Dependents, groups, schedules and
waiting callers therefore learn of a burial as of a failure, and do not wait for a kick.
Plain acknowledgements of tasks without extras skip ``end`` and call ``transition`` for a whole run
of tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.event_cause import NO_CAUSE, EventCause
from taskraft_service.queue.entities.life_cycle import LIFE_CYCLE, EventKind, Operation
from taskraft_service.queue.entities.task_state import BURIED, FINISHED, GONE, TaskOutcome
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.transition import transition

SURPLUS: Final = EventCause("BURIED_MAX")
"""Cause in the feed when a buried task is deleted because its tube has more than buried_max."""


def end(
    state: QueueState,
    task: QueueTask,
    operation: Operation,
    outcome: TaskOutcome,
    kind: EventKind | None = None,
    cause: EventCause = NO_CAUSE,
) -> None:
    """End a task: it leaves the tube (GONE), or is kept (DONE, ZOMBIE) with its outcome.

    The caller must have removed the task from its order, and set the retention of a kept task. A
    kept task has ended before, so its removal has none of the effects of an end.
    """
    if task.state in FINISHED:
        transition(state, task.tube, (task,), operation, kind, cause)
        return
    if outcome is TaskOutcome.EXPIRED:
        task.tube.counters.expire(task.state)
    is_gone = LIFE_CYCLE[task.state, operation] is GONE
    if not is_gone or task.extras.group:
        task.extras = replace(task.extras, outcome=outcome)
    if task.extras.dependents:
        state.dependents.ended(task, outcome)
    if is_gone and outcome is not TaskOutcome.PROCESSED:
        leave_failure(state, task, outcome)
    watcher = state.watcher
    if watcher is not None:
        watcher(task, outcome)
    transition(state, task.tube, (task,), operation, kind, cause, outcome)


def note_failure(state: QueueState, task: QueueTask, failure: Failure) -> None:
    """Add a failure of the current attempt to the task."""
    task.extras = task.extras.with_failure(failure, task.attempt, state.now_ms)


def leave_failure(state: QueueState, task: QueueTask, outcome: TaskOutcome) -> None:
    """Store the last failure of a task that is deleted, if it has a failure."""
    if task.extras.failure is not None:
        state.failures.add(task, outcome, state.now_ms, state.limits)


def bury(
    state: QueueState,
    task: QueueTask,
    operation: Operation,
    failure: Failure | None,
    cause: EventCause,
    kind: EventKind | None = None,
) -> None:
    """Bury a task that the caller has taken out of its order, and notify its dependents.

    The dependents learn of the burial only: the task keeps no set of dependents, so that a kick and
    a later end of the task do not notify them again.
    """
    if failure is not None:
        note_failure(state, task, failure)
    task.extras = replace(task.extras, times_buried=task.extras.times_buried + 1)
    if task.extras.dependents:
        state.dependents.ended(task, TaskOutcome.BURIED_OUT)
    watcher = state.watcher
    if watcher is not None:
        watcher(task, TaskOutcome.BURIED_OUT)
    transition(state, task.tube, (task,), operation, kind, cause, TaskOutcome.BURIED_OUT)
    note_surplus(state, task.tube)


def note_surplus(state: QueueState, tube: QueueTube) -> None:
    """Record a tube that has more buried tasks than ``buried_max``."""
    if _has_surplus(tube):
        state.surplus[tube.number] = tube


def remove_surplus(state: QueueState, tasks_max: int) -> None:
    """Delete buried tasks beyond ``buried_max``, at most ``tasks_max``.

    Tasks of the oldest tube are deleted first, and within a tube in the order of kicks. The
    deletion runs after each command and not within it, so that a command finds every task that it
    names.
    """
    removed = 0
    while over := [number for number, tube in state.surplus.items() if _has_surplus(tube)]:
        if removed >= tasks_max:
            break
        tube = state.surplus[min(over)]
        order = tube.buried.pop_least()
        assert order is not None
        task = state.find(tube, order[2])
        assert task is not None, f"tube {tube.number} has no buried task {order[2]}"
        end(state, task, Operation.DELETE, TaskOutcome.FAILED, cause=SURPLUS)
        removed += 1
        state.steps.left -= 1
    state.surplus = {number: state.surplus[number] for number in over}


def _has_surplus(tube: QueueTube) -> bool:
    return 0 < tube.options.buried_max < tube.counters.states[BURIED]
