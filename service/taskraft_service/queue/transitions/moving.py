"""Move tasks to another tube: they go there as new ones, with a sequence number of that tube.

A holder may do so, giving up may, and whoever chooses tasks that nobody holds. A dead letter knows
the tube that gave it up until it is there again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from taskraft_service.queue.entities.instants import FOREVER_MS, NEVER_MS, after, shown
from taskraft_service.queue.entities.life_cycle import GONE, LIFE_CYCLE, TAKEN, EventKind, Operation
from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.refusals import refused_by_driver
from taskraft_service.queue.entities.task import EffectiveTaskOptions, QueueTask
from taskraft_service.queue.entities.task_view import NO_EXTRAS, Extras, TaskOrigin, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTube
from taskraft_service.queue.entities.tube_driver import ArrivingTask
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.temporary_tubes import out_of_reach
from taskraft_service.queue.transitions.endings import leave_failure
from taskraft_service.queue.transitions.transition import transition
from taskraft_service.queue.transitions.uniqueness import claim


def refusal_of_all(target: QueueTube) -> Refusal | None:
    """Return why no task can go to a tube now, its capacity aside, or None."""
    if target.is_temporary:
        return out_of_reach(target)
    if target.options.put_paused:
        return Refusal(
            Reason.TUBE_PAUSED, "puts into the tube are paused; retry later", {"tube": target.name}
        )
    return None


def refusal_to_receive(ledger: QueueState, target: QueueTube, task: QueueTask) -> Refusal | None:
    """Return why a task cannot go to a tube now, its capacity aside, or None."""
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
            ledger.now_ms,
        )
        return refused_by_driver(target, arrival)
    return refusal


def dead_letters_of(ledger: QueueState, task: QueueTask) -> QueueTube | None:
    """Return the tube for dead letters where a task may go, its capacity aside, or None."""
    target = ledger.tubes.get(task.tube.options.dead_letter_tube)
    if target is None or refusal_to_receive(ledger, target, task) is not None:
        return None
    return target


def move_to(
    ledger: QueueState,
    task: QueueTask,
    target: QueueTube,
    delay_ms: int = 0,
    position: Position = Position.IN_ORDER,
    key: tuple[str, ...] = (),
) -> None:
    """Move a task to another tube, where it goes on living with the times that it has.

    It is taken, or out of its order. One event and one count in each tube; the events name the
    other place. Attempts begin anew. Its unique key stays behind; ``key``, if any, is for it there.
    Who waits for its end waits for that of the moved one, and so does the schedule that put it.
    """
    times = _times_kept(task, target)
    moved = _arrived(ledger, task, target, times, delay_ms, position)
    if key:
        moved.extras = replace(moved.extras, unique_key=key)
        claim(ledger, target, key, moved.id)
    if ledger.watcher is not None:
        ledger.watch.tell_moved(task, target.name, moved.id)
    ledger.schedules.follow((task.tube.number, task.id), (target.number, moved.id))
    arriving = Operation.PUT_DELAYED if _is_delayed(target, delay_ms) else Operation.PUT
    _go(ledger, task, EventKind.MOVE, moved, arriving)


def bring_to_dead_letters(
    ledger: QueueState, task: QueueTask, target: QueueTube, kind: EventKind
) -> None:
    """End a taken task as failed, and put its content into the tube for dead letters.

    ``kind`` is what used it up: so counts and feed tell how it ended. In the other tube a new task
    begins with that one's times, with the failure, and with the origin.
    """
    times = _times_given(ledger, target)
    moved = _arrived(ledger, task, target, times, 0, Position.IN_ORDER)
    moved.extras = replace(
        moved.extras,
        origin=TaskOrigin(task.tube.name, task.id, task.extras.unique_key),
        retry=None,
        group="",
        group_number=0,
        dependents=0,
    )
    if ledger.watcher is not None:
        ledger.watcher(task, TaskOutcome.FAILED)
    task.extras = replace(task.extras, outcome=TaskOutcome.FAILED)
    if task.extras.dependents:
        ledger.dependents.ended(task, TaskOutcome.FAILED)
    leave_failure(ledger, task, TaskOutcome.FAILED)
    _go(ledger, task, kind, moved, Operation.PUT)
    ledger.news.wake(target)


def _go(
    ledger: QueueState, task: QueueTask, kind: EventKind, moved: QueueTask, arriving: Operation
) -> None:
    """Let a task leave its tube and arrive in the other one."""
    assert moved.tube is not task.tube
    leaving = Operation.MOVE if task.state is TAKEN else Operation.MOVE_CHOSEN
    task.tube.counters.depart(task.state)
    moved.tube.counters.arrive(LIFE_CYCLE[GONE, arriving])
    origin, target = f"{task.tube.name}/{task.id}", f"{moved.tube.name}/{moved.id}"
    outcome = task.extras.outcome
    transition(ledger, task.tube, (task,), leaving, kind, target, outcome)
    transition(ledger, moved.tube, (moved,), arriving, EventKind.MOVE, origin)


def _priority_in(target: QueueTube, priority: int) -> int:
    """Return the priority that a task has in a tube: its own if the tube knows it."""
    options = target.options
    if target.has_options and options.priority_min <= priority <= options.priority_max:
        return priority
    return options.priority


class _Times(NamedTuple):
    """What limits a task and its leases."""

    ttl_ms: int
    ttr_ms: int
    expire_at_ms: int


def _times_kept(task: QueueTask, target: QueueTube) -> _Times:
    """Return the times with which a task goes on in a tube: none where the tube knows none."""
    if not target.has_options:
        return _Times(FOREVER_MS, FOREVER_MS, NEVER_MS)
    return _Times(task.ttl_ms, task.ttr_ms, task.expire_at_ms)


def _times_given(ledger: QueueState, target: QueueTube) -> _Times:
    """Return the times with which a task begins anew in a tube."""
    options = target.options
    return _Times(options.ttl_ms, options.ttr_ms, after(ledger.now_ms, options.ttl_ms))


def _arrived(
    ledger: QueueState,
    task: QueueTask,
    target: QueueTube,
    times: _Times,
    delay_ms: int,
    position: Position,
) -> QueueTask:
    """Return the task as it is in its new tube, not known there yet."""
    priority = _priority_in(target, task.priority)
    delayed = _is_delayed(target, delay_ms)
    terms = EffectiveTaskOptions(
        Operation.PUT_DELAYED if delayed else Operation.PUT,
        0 if delayed or position is Position.IN_ORDER else target.lane(position),
        target.rank(priority),
        priority,
        times.ttl_ms,
        times.ttr_ms,
        after(ledger.now_ms, delay_ms) if delayed else NEVER_MS,
        times.expire_at_ms,
    )
    task_id = target.next_id
    target.next_id += 1
    subqueue = task.subqueue if target.has_subqueues else ""
    body = ledger.body(task)
    moved = QueueTask(
        target, task_id, terms, task.created_ms, body, task.payload_bytes, task.type, subqueue
    )
    moved.since_ms = ledger.now_ms
    moved.extras = _extras_there(task.extras, target)
    return moved


def _is_delayed(target: QueueTube, delay_ms: int) -> bool:
    """Return whether a task arrives delayed: not in a tube whose tasks have no times."""
    return delay_ms > 0 and target.has_options


def _extras_there(extras: Extras, target: QueueTube) -> Extras:
    """Return the rare attributes that a task has in another tube; its unique key stays behind."""
    if extras is NO_EXTRAS:
        return extras
    is_home = extras.origin is not None and extras.origin.tube == target.name
    return replace(
        extras,
        origin=None if is_home else extras.origin,
        progress=None,
        unique_key=(),
        cancel_requested=False,
    )
