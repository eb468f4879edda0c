"""Bring tasks from one state to another, with everything that follows from it.

These are the steps that operations are made of. They decide nothing: whoever calls has checked.
Every step keeps the orders, the timers, the leases, the counters and the feed in step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from taskraft_service.queue.driver import MEMORY_BYTES_MAX, RANK_MAX, RANK_MIN, arrival_of
from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.task_view import State, TaskOutcome
from taskraft_service.queue.feed.event import emit
from taskraft_service.queue.life_cycle import BURIED, DELAYED, GONE, READY, TAKEN, EventKind

if TYPE_CHECKING:
    from taskraft_service.queue.ledger import Ledger
    from taskraft_service.queue.tasks.task import Task


def move(
    ledger: Ledger,
    task: Task,
    kind: EventKind,
    state: State,
    reason: str = "",
    outcome: TaskOutcome = TaskOutcome.NONE,
) -> None:
    """Bring a task to a state.

    The caller has set what the state needs (deadlines, order, token and session of a taken
    task) and may set more afterwards that no index depends on. A task that leaves TAKEN loses
    its lease here. ``outcome``: how it ends or is buried by that, for the feed.
    """
    before = task.state
    assert not (task.extras.cancel_requested and state in (READY, DELAYED))
    ledger.touch_task(task)
    emit(ledger, (task,), kind, before, state, reason, outcome)
    ledger.tubes.touch(task.tube)
    if before is not state or kind is not EventKind.UPDATE:
        _wait(ledger, task, before, state)
    gone_bytes = -task.payload_bytes if state is GONE else 0
    task.tube.counters.count(kind, before, state, 1, gone_bytes)
    if before is TAKEN:
        _end_lease(ledger, task)
    elif before is DELAYED and state is not DELAYED:
        task.visible_at_ms = NEVER_MS
    task.state = state
    if state is GONE:
        forget(ledger, task)
    elif state is READY:
        if task.tube.custom is not None:
            line_up(ledger, task)
        task.tube.ready.add(task)
    elif state is BURIED:
        task.tube.buried.add(task.buried_order)
    ledger.timers.renew(task)
    if task.extras.group:
        ledger.groups.moved(task, kind, before, state)


def _wait(ledger: Ledger, task: Task, before: State, state: State) -> None:
    """Begin to count how long a task is in a state; a change of its content goes on with it."""
    ages = task.tube.ages
    if before is READY:
        ages.left(task.since_ms)
    if state is READY:
        ages.came(ledger.now_ms)
        ledger.tubes.totals.note_ready(task.tube)
    task.since_ms = ledger.now_ms


def _end_lease(ledger: Ledger, task: Task) -> None:
    """Make a taken task's token stale, and let its sub-queue give another."""
    ready = task.tube.ready
    if ready.counts_leases:
        ready.free((task,))
    ledger.leases.pop(task.token, None)  # an acknowledgement has taken it out already
    if task.session is not None:
        del task.session.held[task.token]
        task.session = None
    task.token = 0
    task.lease_until_ms = NEVER_MS
    if task.extras.cancel_requested:
        task.extras = replace(task.extras, cancel_requested=False)


def welcome(ledger: Ledger, task: Task, kind: EventKind, reason: str) -> None:
    """Take a new task into its tube, in its state."""
    tube, state = task.tube, task.state
    tube.tasks[task.id] = task
    ledger.dirty_tasks.append(task)
    ledger.resident_bytes += len(task.body or b"")
    emit(ledger, (task,), kind, GONE, state, reason)
    ledger.tubes.touch(tube)
    tube.counters.count(kind, GONE, state, 1, task.payload_bytes)
    if state is READY:
        tube.ages.came(ledger.now_ms)
        ledger.tubes.totals.note_ready(tube)
        if tube.custom is not None:
            line_up(ledger, task)
        tube.ready.add(task)
    ledger.timers.renew(task)
    if task.extras.group:
        ledger.groups.came(task)


def line_up(ledger: Ledger, task: Task) -> None:
    """Let the driver of its tube say where a task stands that becomes ready."""
    tube = task.tube
    assert tube.custom is not None
    placement = tube.custom.place(arrival_of(task, ledger.now_ms), tube.memory)
    rank, memory = placement.rank, placement.memory
    assert RANK_MIN <= rank <= RANK_MAX, f"driver {tube.driver!r}: rank {rank}"
    assert len(memory) <= MEMORY_BYTES_MAX, f"driver {tube.driver!r}: {len(memory)} bytes"
    lane, _, task_id = task.order
    task.order = (lane, rank, task_id)
    tube.memory = memory


def leave_order(task: Task) -> None:
    """Take a task out of the order that it is in, before its order or state changes."""
    if task.state is READY:
        task.tube.ready.discard(task)
    elif task.state is BURIED:
        task.tube.buried.discard(task.buried_order)


def forget(ledger: Ledger, task: Task) -> None:
    """Let go of a task that is gone; if the store knows it, it stays until the next batch."""
    key = task.extras.unique_key
    if key:
        ledger.unique_keys.free(task.tube.number, key, task.id)
    if task.extras.waiting is not None:
        ledger.dependents.leave(task)
    if task.written is None:
        del task.tube.tasks[task.id]
    if task.body:
        ledger.resident_bytes -= len(task.body)
        task.body = None
