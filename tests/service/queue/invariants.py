"""Check the invariants of all tasks in memory after each operation."""

from __future__ import annotations

from unittest.mock import patch

from taskraft_service.queue import queue as queue_module
from taskraft_service.queue.entities.instants import NEVER_MS
from taskraft_service.queue.entities.task_state import State


def check_tasks(state):
    """Assert the invariants of the tasks in memory and of the lease index."""
    taken = 0
    for tube in state.tubes.values():
        for task_id, task in tube.tasks.items():
            assert task.id == task_id
            assert task.tube is tube
            check_task(state, task)
            taken += task.state is State.TAKEN
    within_reach = [task for task in state.leases.values() if task.tube.name in state.tubes]
    assert len(within_reach) == taken, "every lease belongs to a TAKEN task"
    for session in state.sessions.values():
        for token in session.held:
            assert state.leases[token].session is session, "a session holds only its own leases"
        assert list(session.held) == sorted(session.held)
        asked = {token for token in session.held if state.leases[token].extras.cancel_requested}
        assert session.cancelled.keys() == asked


def check_task(state, task):
    """Assert the invariants of one task."""
    is_taken = task.state is State.TAKEN
    assert (task.token > 0) is is_taken, "the token is 0 unless the task is TAKEN"
    if is_taken:
        assert state.leases[task.token] is task
        assert task.session is None or task.token in task.session.held
        assert task.session is None or not task.taker
    else:
        assert task.session is None
        assert not task.taker
        assert task.lease_until_ms == NEVER_MS
        assert not task.extras.cancel_requested
    assert task.timer == task.due()
    if task.state not in (State.DELAYED, State.HELD, State.GONE):
        assert task.visible_at_ms == NEVER_MS
    if task.state is State.GONE:
        assert task.body is None
        assert task.written is not None, "only a task that the store knows stays in memory"
    elif task.state is not State.HELD:
        assert task.extras.waiting is None


def checking_after_each_operation():
    """Return a patch that checks the tasks of a queue after each operation."""

    def checked(do):
        def run(state, *arguments):
            result = do(state, *arguments)
            check_tasks(state)
            return result

        return run

    names = ("advance", "execute", "execute_together", "settle_dependents", "sweep_groups")
    return patch.multiple(
        queue_module, **{name: checked(getattr(queue_module, name)) for name in names}
    )
