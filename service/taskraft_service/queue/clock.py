"""Advance the clock of the queue and fire the deadlines that are due."""

from __future__ import annotations

from itertools import islice
from typing import Final

from taskraft_service.queue.entities.life_cycle import EventKind, Operation
from taskraft_service.queue.entities.task_state import TAKEN, TaskOutcome
from taskraft_service.queue.operations.lease_returns import return_lease
from taskraft_service.queue.operations.releasing import LEASE_LOST, hand_back
from taskraft_service.queue.operations.sessions import end_session
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.keys import (
    DELAY_TIMER,
    LEASE_TIMER,
    RATE_TIMER,
    RETENTION_TIMER,
    SESSION_TIMER,
    TASK_TIMERS,
    TTL_TIMER,
)
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import leave_order, transition

VOID_DEADLINES_FACTOR: Final = 16
"""Maximum number of deadlines that an entry examines, as a multiple of its steps.
"""

SUBQUEUES_MAX: Final = 100
"""Maximum number of sub-queues of one tube that one rate timer readmits."""


def advance(state: QueueState, now_ms: int) -> None:
    """Set the clock to ``now_ms`` and fire due deadlines in order of time, kind, tube and id.

    Each deadline is a step of the entry. If more are due than the entry has steps,
    ``next_deadline_ms`` stays in the past. ``now_ms`` must not be below the current clock.
    """
    assert now_ms >= state.now_ms, f"the clock goes back from {state.now_ms} to {now_ms}"
    state.now_ms = now_ms
    requests = state.requests
    if now_ms >= requests.window_end_ms or requests.is_full:
        requests.rotate(now_ms)
    timers = state.timers
    timer = timers.least()
    if timer is None or timer[0] > now_ms:
        return
    steps = state.steps
    most = steps.left
    _read_due(state, most)
    looked_at = 0
    # Count the deadlines of truncated and dropped tubes too: they have no effect, but can be many.
    while steps.left > 0 and looked_at < VOID_DEADLINES_FACTOR * most:
        timer = timers.least()
        if timer is None or timer[0] > now_ms:
            return
        timers.pop_least()
        taken = _fire(state, timer)
        steps.left -= taken
        looked_at += 1


def _read_due(state: QueueState, count: int) -> None:
    """Read the tasks of up to ``count`` due deadlines, and of later deadlines if memory allows."""
    due = list(islice(state.timers.in_memory_until((state.now_ms + 1,)), count))
    if not any(_is_stored(state, timer) for timer in due):
        return
    limits = state.limits
    if state.resident_bytes <= limits.resident_bytes_max:
        due += state.timers.coming(limits.read_tasks_max)
    ids: dict[int, list[int]] = {}
    for _, kind, tube_number, number in due:
        if kind in TASK_TIMERS:
            ids.setdefault(tube_number, []).append(number)
    for tube_number, numbers in ids.items():
        tube = state.tubes.by_number.get(tube_number)
        if tube is not None:
            state.bring_all(tube, numbers)


def _is_stored(state: QueueState, timer: OrderKey) -> bool:
    """Return whether the task of a deadline is not in memory."""
    _, kind, tube_number, number = timer
    tube = state.tubes.by_number.get(tube_number) if kind in TASK_TIMERS else None
    return tube is not None and number not in tube.tasks


def _fire(state: QueueState, timer: OrderKey) -> int:
    """Fire one timer; return the number of steps that remain to be counted.

    The steps of a session are counted here. 0: the tube no longer exists.
    """
    _, kind, tube_number, number = timer
    if kind == SESSION_TIMER:
        session = state.sessions.by_number[number]
        assert session.timer == timer
        session.timer = None
        state.steps.left -= 1
        end_session(state, session)
        return 0
    tube = state.tubes.by_number.get(tube_number)
    if tube is None:
        state.void_timers.append(timer)  # truncated or dropped; later entries delete its tasks
        return 0
    state.signals.signal_ready(tube)
    if kind == RATE_TIMER:
        assert tube.timer == timer
        tube.timer = None
        work = tube.refill(state.now_ms, SUBQUEUES_MAX)
        state.set_tube_timer(tube)
        return work
    task = state.find(tube, number)
    assert task is not None
    assert task.timer == timer
    if kind == DELAY_TIMER:
        transition(state, tube, (task,), Operation.DELAY_END)
    elif kind == LEASE_TIMER:
        assert task.state is TAKEN
        pending = state.lease_returns.find(task) if state.lease_returns else None
        if pending is not None:
            return_lease(state, task, pending)  # the attempt may not count
        else:
            hand_back(state, task, EventKind.TTR_EXPIRED, LEASE_LOST)
    elif kind == TTL_TIMER:
        leave_order(task)
        end(state, task, Operation.TTL_END, TaskOutcome.EXPIRED)
    else:
        assert kind == RETENTION_TIMER
        transition(state, tube, (task,), Operation.RETENTION_END)
    return 1
