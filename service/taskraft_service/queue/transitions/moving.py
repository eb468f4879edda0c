"""Move tasks to another tube, where each gets the next task id of that tube.

A consumer can move a task that it holds, a retry policy can move it to the dead-letter tube, and an
administrator can move tasks without a lease. A dead letter stores its tube of origin until it
returns to this tube.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from taskraft_service.queue.entities.event_cause import NO_CAUSE, EventCause
from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, after, shown
from taskraft_service.queue.entities.life_cycle import LIFE_CYCLE, EventKind, Operation
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.retry_policy import Position
from taskraft_service.queue.entities.task_state import GONE, TAKEN, TaskOutcome
from taskraft_service.queue.entities.task_view import NO_EXTRAS, Extras, TaskOrigin
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.entities.tube_driver import ArrivingTask
from taskraft_service.queue.entities.tube_limits import EffectiveTaskOptions
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import out_of_reach
from taskraft_service.queue.transitions.endings import leave_failure
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.transitions.updating import claim

BYTES_PER_STEP: Final = 128 * 1024
"""Content that takes as long to move as one step of long work."""


def refusal_of_all(target: QueueTube) -> Refusal | None:
    """Return why a tube accepts no moved tasks, or None; the capacity is not checked."""
    if target.is_temporary:
        return out_of_reach(target)
    if target.options.put_paused:
        return Refusal(
            Reason.TUBE_PAUSED, "puts into the tube are paused; retry later", {"tube": target.name}
        )
    return target.refusal_of_quarantine()


def refusal_to_receive(state: QueueState, target: QueueTube, task: QueueTask) -> Refusal | None:
    """Return why a tube does not accept this task, or None; the capacity is not checked."""
    refusal = refusal_of_all(target)
    if refusal is None and target.custom is not None:
        arrival = ArrivingTask(
            0,
            _priority_in(target, task.priority),
            task.type,
            task.payload_bytes,
            0,
            task.created_ms,
            shown(task.expire_at_ms),
            state.now_ms,
        )
        return state.quarantines.refusal_of(target, arrival, state.index)
    return refusal


def dead_letters_of(state: QueueState, task: QueueTask) -> QueueTube | None:
    """Return the dead-letter tube of a task if it accepts the task, or None."""
    target = state.tubes.get(task.tube.options.dead_letter_tube)
    if target is None or refusal_to_receive(state, target, task) is not None:
        return None
    return target


def move_to(
    state: QueueState,
    task: QueueTask,
    target: QueueTube,
    delay_ms: int = 0,
    position: Position = Position.IN_ORDER,
    key: tuple[str, ...] = (),
) -> None:
    """Move a task to another tube with its times and its payload.

    The task is TAKEN, or removed from its order. Each tube counts one transition and gets one
    event, which names the other tube and task. The attempts start at 0. The task loses its unique
    key; ``key`` is the unique key in the target tube, if any. Dependents, waiting calls and the
    schedule of the task then refer to the task in the target tube.
    """
    times = _times_kept(task, target)
    moved = _arrived(state, task, target, times, delay_ms, position)
    if key:
        moved.extras = replace(moved.extras, unique_key=key)
        claim(state, target, key, moved.id)
    if state.watcher is not None:
        state.watch.tell_moved(task, target.name, moved.id)
    state.schedules.follow((task.tube.number, task.id), (target.number, moved.id))
    arriving = Operation.PUT_DELAYED if _is_delayed(target, delay_ms) else Operation.PUT
    _go(state, task, EventKind.MOVE, moved, arriving, NO_CAUSE)


def bring_to_dead_letters(
    state: QueueState, task: QueueTask, target: QueueTube, kind: EventKind, cause: EventCause
) -> None:
    """End a taken task as failed, and put its payload into the dead-letter tube.

    ``kind`` is the operation that used the attempts up; the counters and the feed show it, and the
    events have ``cause``. The new task starts with the times of the dead-letter tube, the failure,
    and the origin. Large content takes steps of the entry, because deadlines and ended sessions
    move many tasks.
    """
    state.steps.left -= task.payload_bytes // BYTES_PER_STEP
    times = _times_given(state, target)
    moved = _arrived(state, task, target, times, 0, Position.IN_ORDER)
    moved.extras = replace(
        moved.extras,
        origin=TaskOrigin(task.tube.name, task.id, task.extras.unique_key),
        retry=None,
        group="",
        group_number=0,
        dependents=0,
    )
    if state.watcher is not None:
        state.watcher(task, TaskOutcome.FAILED)
    task.extras = replace(task.extras, outcome=TaskOutcome.FAILED)
    if task.extras.dependents:
        state.dependents.ended(task, TaskOutcome.FAILED)
    leave_failure(state, task, TaskOutcome.FAILED)
    _go(state, task, kind, moved, Operation.PUT, cause)
    state.signals.signal_ready(target)


def _go(
    state: QueueState,
    task: QueueTask,
    kind: EventKind,
    moved: QueueTask,
    arriving: Operation,
    cause: EventCause,
) -> None:
    """Make the two transitions of a move: leave the source tube, and enter the target tube."""
    assert moved.tube is not task.tube
    leaving = Operation.MOVE if task.state is TAKEN else Operation.MOVE_CHOSEN
    task.tube.counters.depart(task.state)
    moved.tube.counters.arrive(LIFE_CYCLE[GONE, arriving])
    to_target = replace(cause, target=f"{moved.tube.name}/{moved.id}")
    from_origin = replace(cause, target=f"{task.tube.name}/{task.id}", attempt_failed=False)
    outcome = task.extras.outcome
    transition(state, task.tube, (task,), leaving, kind, to_target, outcome)
    transition(state, moved.tube, (moved,), arriving, EventKind.MOVE, from_origin)


def _priority_in(target: QueueTube, priority: int) -> int:
    """Return the task's priority if it is in the tube's range, otherwise the tube's default."""
    options = target.options
    if target.has_options and options.priority_min <= priority <= options.priority_max:
        return priority
    return options.priority


class _Times(NamedTuple):
    """Time to live and time to run of a task."""

    ttl_ms: int
    ttr_ms: int
    expire_at_ms: int


def _times_kept(task: QueueTask, target: QueueTube) -> _Times:
    """Return the times of the task; unlimited if the tube's tasks have no times."""
    if not target.has_options:
        return _Times(FOREVER_MS, FOREVER_MS, NEVER_MS)
    return _Times(task.ttl_ms, task.ttr_ms, task.expire_at_ms)


def _times_given(state: QueueState, target: QueueTube) -> _Times:
    """Return the default times of a new task in a tube."""
    options = target.options
    return _Times(options.ttl_ms, options.ttr_ms, after(state.now_ms, options.ttl_ms))


def _arrived(
    state: QueueState,
    task: QueueTask,
    target: QueueTube,
    times: _Times,
    delay_ms: int,
    position: Position,
) -> QueueTask:
    """Return the new task that represents the moved task in the target tube, in state GONE."""
    priority = _priority_in(target, task.priority)
    delayed = _is_delayed(target, delay_ms)
    terms = EffectiveTaskOptions(
        Operation.PUT_DELAYED if delayed else Operation.PUT,
        0 if delayed or position is Position.IN_ORDER else target.lane(position),
        target.rank(priority),
        priority,
        times.ttl_ms,
        times.ttr_ms,
        after(state.now_ms, delay_ms) if delayed else NEVER_MS,
        times.expire_at_ms,
    )
    task_id = target.next_id
    target.next_id += 1
    subqueue = task.subqueue if target.has_subqueues else ""
    body = state.body(task)
    moved = QueueTask(
        target, task_id, terms, task.created_ms, body, task.payload_bytes, task.type, subqueue
    )
    moved.since_ms = state.now_ms
    moved.extras = _extras_there(task.extras, target)
    return moved


def _is_delayed(target: QueueTube, delay_ms: int) -> bool:
    """Return whether a task arrives delayed; a tube whose tasks have no times delays no task."""
    return delay_ms > 0 and target.has_options


def _extras_there(extras: Extras, target: QueueTube) -> Extras:
    """Return the extras in the target tube.

    The task loses its unique key, its progress, its cancellation, its failed attempts and the time
    to run of its lease.
    """
    if extras is NO_EXTRAS:
        return extras
    is_home = extras.origin is not None and extras.origin.tube == target.name
    return replace(
        extras,
        origin=None if is_home else extras.origin,
        progress=None,
        unique_key=(),
        cancel_requested=False,
        failed_attempts=0,
        lease_ms=0,
    )
