"""Tell dependents that a dependency has ended; the last ended dependency makes a task available.

A task can have many dependents, and one failure can end a chain of tasks. The work proceeds in
bounded steps per entry, in the order in which the dependencies ended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from taskraft_service.queue.entities.instants import NEVER_MS, after
from taskraft_service.queue.entities.life_cycle import Operation
from taskraft_service.queue.entities.task_state import HELD, TaskOutcome
from taskraft_service.queue.entities.task_view import Failure, OnDependencyFailure, Waiting
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.operations.groups import settle_groups
from taskraft_service.queue.state.dependents import TaskEnding
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import unhold_if_clear

FAILURE_TYPE: Final = "DEPENDENCY_FAILED"


def settle_dependents(state: QueueState, tasks_max: int) -> int:
    """Process ended dependencies; return the number of told dependents.

    Ending a dependent can end further tasks. At most ``tasks_max`` dependents are told; the next
    call continues.
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
    if done:
        settle_groups(state)
    return done


def _hear(state: QueueState, task: QueueTask, ending: TaskEnding) -> None:
    """Tell a held task that one of its dependencies has ended."""
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
            end(state, task, operation, TaskOutcome.DEPENDENCY_FAILED, reason=place)
            return
    if not still_open:
        _begin_delay(state, task, waiting)
        unhold_if_clear(
            state, task, Operation.DEPENDENCIES_DONE, Operation.DEPENDENCIES_DONE_DELAYED
        )


def _begin_delay(state: QueueState, task: QueueTask, waiting: Waiting) -> None:
    """Start the delay of a task now; an absolute time of the producer stays the earliest."""
    if waiting.delay_ms <= 0:
        return
    due_ms = min(after(state.now_ms, waiting.delay_ms), NEVER_MS - 1)
    named_ms = task.visible_at_ms if task.visible_at_ms < NEVER_MS else due_ms
    task.visible_at_ms = max(due_ms, named_ms)
