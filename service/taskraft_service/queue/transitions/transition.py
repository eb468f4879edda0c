"""Change the state of tasks; no other module may change it.

``transition`` looks the target state up in ``LIFE_CYCLE`` and updates everything that depends on
the state of a task: leases, ready and buried orders, timers, counters, ready ages, groups, unique
keys and the change feed. The function checks nothing; callers check first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from taskraft_service.queue.entities.event_cause import NO_CAUSE, EventCause
from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.life_cycle import EVENT_KINDS, LIFE_CYCLE, EventKind, Operation
from taskraft_service.queue.entities.task_state import (
    BURIED,
    DELAYED,
    GONE,
    HELD,
    OPEN,
    READY,
    TAKEN,
    State,
    TaskOutcome,
)
from taskraft_service.queue.entities.task_view import NO_EXTRAS
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.state.queue_state import QueueState

IN_PLACE: Final = frozenset({EventKind.UPDATE, EventKind.TOUCH, EventKind.CANCEL})
"""Kinds of events that can change a task without restarting its time in the state."""
NO_OUTCOME: Final = TaskOutcome.NONE
TRUNCATE: Final = Operation.TRUNCATE
_since_of: Final = attrgetter("since_ms")


def transition(
    state: QueueState,
    tube: QueueTube,
    tasks: Sequence[QueueTask],
    operation: Operation,
    kind: EventKind | None = None,
    cause: EventCause = NO_CAUSE,
    outcome: TaskOutcome = NO_OUTCOME,
) -> None:
    """Move tasks of one tube, all in one state, to the next state in ``LIFE_CYCLE``.

    Before the call, the caller removes the tasks from their order (``leave_order``) and sets the
    attributes of the new state: deadlines, order, and for TAKEN the attempt and the holder. A new
    task is GONE before its first transition. A task that leaves TAKEN loses its lease. After the
    call, the caller may change only attributes that no index depends on.

    Args:
        state: the state of the queue.
        tube: the tube of the tasks.
        tasks: at least one task.
        operation: operation on the tasks.
        kind: kind of the events; default: the kind of the operation in ``EVENT_KINDS``.
        cause: the cause, for the events.
        outcome: outcome of tasks that end or are buried, for the events.
    """
    before = tasks[0].state
    after = LIFE_CYCLE[before, operation]
    if kind is None:
        kind = EVENT_KINDS[operation]
    state.feed.emit(state.stamp, tasks, kind, before, after, cause, outcome)
    is_in_place = before is after and kind in IN_PLACE
    payload_bytes = 0
    if before is GONE:
        payload_bytes = _insert(state, tube, tasks)
    elif operation is not TRUNCATE and not is_in_place:
        _leave(state, tube, tasks, before)
    for task in tasks:
        assert task.state is before
        task.state = after
    if after is GONE:
        payload_bytes = _remove(state, tube, tasks)
    elif after is TAKEN and not is_in_place:
        _start_leases(state, tube, tasks)
    else:
        _enter(state, tube, tasks, after, is_in_place=is_in_place)
    if operation is not TRUNCATE:  # the counters of a truncated tube were already emptied
        if not tube.dirty:
            state.tubes.touch(tube)
        tube.counters.count(kind, before, after, len(tasks), payload_bytes)
    if state.groups.by_name and before is not after:
        _tell_groups(state, tasks, kind, before, after)


def _insert(state: QueueState, tube: QueueTube, tasks: Sequence[QueueTask]) -> int:
    """Keep new tasks in memory until they are written; return their payload bytes."""
    residents = tube.tasks
    payload_bytes = resident_bytes = 0
    for task in tasks:
        residents[task.id] = task
        payload_bytes += task.payload_bytes
        if task.body is not None:
            resident_bytes += len(task.body)
    state.dirty_tasks += tasks
    state.fresh_tasks += len(tasks)
    state.resident_bytes += resident_bytes
    return payload_bytes


def _leave(state: QueueState, tube: QueueTube, tasks: Sequence[QueueTask], before: State) -> None:
    """End the lease, or the ready age, of tasks that leave a state."""
    if before is TAKEN:
        _end_leases(state, tube, tasks)
    elif before is READY:
        if len(tasks) == 1:
            tube.ages.remove(tasks[0].since_ms)
        else:
            tube.ages.remove_all(list(map(_since_of, tasks)))


def _end_leases(state: QueueState, tube: QueueTube, tasks: Sequence[QueueTask]) -> None:
    """Invalidate the tokens of tasks, and let their sub-queues offer the next tasks."""
    if tube.ready.counts_leases:
        tube.ready.free(tasks)
    leases, of_tube = state.leases, tube.leases
    for task in tasks:
        token, session = task.token, task.session
        del leases[token], of_tube[token]
        if session is not None:
            del session.held[token]
            task.session = None
        elif task.taker:
            task.taker = ""
        task.token = 0
        task.lease_until_ms = NEVER_MS
        extras = task.extras
        if extras is not NO_EXTRAS and (extras.cancel_requested or extras.lease_ms):
            if session is not None:
                session.cancelled.pop(token, None)
            task.extras = replace(extras, cancel_requested=False, lease_ms=0)


def _start_leases(state: QueueState, tube: QueueTube, tasks: Sequence[QueueTask]) -> None:
    """Assign new lease tokens, and record the leases in the sessions."""
    now_ms, token, leases, of_tube = state.now_ms, state.token, state.leases, tube.leases
    for task in tasks:
        if not task.dirty:  # no ``touch_task``: a task that is being taken is in memory
            task.dirty = True
            state.dirty_tasks.append(task)
        elif task.written is None:
            state.fresh_tasks -= 1
        token += 1
        task.token = token
        task.since_ms = now_ms
        task.visible_at_ms = NEVER_MS
        leases[token] = of_tube[token] = task
        session = task.session
        if session is not None:
            session.held[token] = None
        if task.timer is not None or task.lease_until_ms < NEVER_MS or task.expire_at_ms < NEVER_MS:
            state.timers.renew(task)
    state.token = token


def _enter(
    state: QueueState,
    tube: QueueTube,
    tasks: Sequence[QueueTask],
    after: State,
    *,
    is_in_place: bool,
) -> None:
    """Move tasks into a state without a new lease; ``is_in_place`` keeps ``since_ms``."""
    now_ms = state.now_ms
    is_ready = after is READY
    has_driver = is_ready and tube.custom is not None
    for task in tasks:
        if not task.dirty:
            state.touch_task(task)
        task.since_ms = task.since_ms if is_in_place else now_ms
        if after is not DELAYED and after is not HELD:
            task.visible_at_ms = NEVER_MS
        if has_driver:
            state.quarantines.assign_rank(task, state.index, state.now_ms)
        elif after is BURIED:
            tube.buried.add(task.buried_order)
        if not is_ready or task.timer is not None or task.expire_at_ms < NEVER_MS:
            state.timers.renew(task)
    if is_ready:
        tube.ready.add_all(tasks)
        if not is_in_place:
            tube.ages.add(now_ms, len(tasks))
            totals = state.tubes.totals
            if tube.number not in totals.noted:
                totals.note_ready(tube)


def _remove(state: QueueState, tube: QueueTube, tasks: Sequence[QueueTask]) -> int:
    """Remove deleted tasks; return the change of payload bytes, which is negative.

    A task that the store knows stays in memory until the next batch of writes deletes its record.
    """
    residents = tube.tasks
    payload_bytes = resident_bytes = 0
    for task in tasks:
        payload_bytes -= task.payload_bytes
        if task.timer is not None:
            state.timers.cancel(task)
        if task.extras is not NO_EXTRAS:
            _remove_references(state, tube, task)
        if task.written is None:
            del residents[task.id]
        elif not task.dirty:
            state.touch_task(task)
        body = task.body
        if body is not None:
            resident_bytes += len(body)
            task.body = None
    state.resident_bytes -= resident_bytes
    return payload_bytes


def _remove_references(state: QueueState, tube: QueueTube, task: QueueTask) -> None:
    """Free the unique key of a deleted task, and remove it from the sets of dependents."""
    key = task.extras.unique_key
    if key:
        state.unique_keys.free(tube.number, key, task.id)
    if task.extras.waiting is not None:
        state.dependents.leave(task)


def _tell_groups(
    state: QueueState, tasks: Sequence[QueueTask], kind: EventKind, before: State, after: State
) -> None:
    """Update the counts of groups whose tasks were put, ended, buried or made ready again."""
    if before in OPEN and after in OPEN:
        return
    for task in tasks:
        if task.extras is NO_EXTRAS or not task.extras.group:
            continue
        if before is GONE:
            state.groups.task_added(task)
        else:
            state.groups.task_changed(task, kind, before, after)


def unhold_if_clear(
    state: QueueState, task: QueueTask, operation: Operation, delayed_operation: Operation
) -> None:
    """Make a held task READY, or DELAYED until its time, unless the task is still held.

    A group that is not started, or an open dependency, holds a task. ``operation`` makes the task
    ready, ``delayed_operation`` delays the task.
    """
    assert task.state is HELD
    if task.extras.waiting is not None or state.groups.holds(task):
        return
    is_delayed = state.now_ms < task.visible_at_ms < NEVER_MS
    transition(state, task.tube, (task,), delayed_operation if is_delayed else operation)
    state.signals.signal_ready(task.tube)


def leave_order(task: QueueTask) -> None:
    """Remove a task from the order of its state, before its order or its state changes."""
    if task.state is READY:
        task.tube.ready.discard(task)
    elif task.state is BURIED:
        task.tube.buried.discard(task.buried_order)
