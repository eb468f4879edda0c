"""Give the leases of an ended session, or those of a tube, back to their tubes, in steps."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.operations.releasing import SESSION_LOST, come_back, hand_back
from taskraft_service.queue.state.lease_returns import LeaseReturn
from taskraft_service.queue.state.queue_state import QueueState


def begin_return(state: QueueState, work: LeaseReturn) -> None:
    """Give as many leases back as the entry has steps left; later entries continue."""
    _go_on(state, work, max(state.steps.left, 0))


def continue_returns(state: QueueState) -> None:
    """Give further leases back, after the commands of an entry."""
    steps = state.steps
    room = steps.room
    while room > 0 and state.lease_returns:
        room -= _go_on(state, state.lease_returns.fetch_first(), room)


def return_lease(state: QueueState, task: QueueTask, work: LeaseReturn) -> None:
    """Give one lease back: a step of the end of its session, or of the release of its tube.

    The change feed records if the client did not return after a change of leader.
    """
    state.signals.signal_ready(task.tube)
    session = task.session
    if not work.of_session or session is None:
        come_back(state, task, EventKind.RELEASE_ALL)
        return
    kind = EventKind.STARTUP_RELEASE if session.orphaned else EventKind.SESSION_RELEASE
    if work.uncounted:
        come_back(state, task, kind)
        task.attempt -= 1
    else:
        hand_back(state, task, kind, SESSION_LOST)


def _go_on(state: QueueState, work: LeaseReturn, tasks_max: int) -> int:
    """Give leases back in up to ``tasks_max`` steps; return the number of steps, at least 1.

    A task with large content that becomes a dead letter takes several steps; the last task may
    exceed the maximum.
    """
    steps = state.steps
    before = steps.left
    tasks = [task for _, task in islice(_leases(state, work), tasks_max + 1)]
    returned = 0
    for task in tasks:
        if before - steps.left >= tasks_max:
            break
        return_lease(state, task, work)
        steps.left -= 1
        returned += 1
    if returned < len(tasks):
        state.lease_returns.add(work)
    elif work.of_session:
        state.sessions.remove(state.sessions.by_number[work.number])
    return max(before - steps.left, 1)


def _leases(state: QueueState, work: LeaseReturn) -> Iterable[tuple[int, QueueTask]]:
    """Return the leases that remain, the oldest first."""
    if work.of_session:
        return (
            (token, state.leases[token]) for token in state.sessions.by_number[work.number].held
        )
    tube = state.tubes.by_number.get(work.number)
    if tube is None:
        return ()  # truncated or dropped since
    return takewhile(lambda lease: lease[0] <= work.last_token, tube.leases.items())
