"""Return the leases of an ended session, or of a tube, in steps."""

from __future__ import annotations

from itertools import islice, takewhile

from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.operations.releasing import SESSION_LOST, come_back, hand_back
from taskraft_service.queue.state.lease_returns import LeaseReturn
from taskraft_service.queue.state.queue_state import QueueState


def begin_return(state: QueueState, work: LeaseReturn) -> None:
    """Return as many leases as the entry has steps left; later entries return the others."""
    _go_on(state, work, max(state.steps.left, 0))


def continue_returns(state: QueueState) -> None:
    """Return further leases, after the commands of an entry."""
    steps = state.steps
    room = steps.room
    while room > 0 and state.lease_returns:
        room -= _go_on(state, state.lease_returns.fetch_first(), room)


def _go_on(state: QueueState, work: LeaseReturn, tasks_max: int) -> int:
    """Return up to ``tasks_max`` leases; return the number of steps, which is at least 1."""
    if work.of_session:
        session = state.sessions.by_number[work.number]
        returned = _return_of_session(state, session, work, tasks_max)
        is_finished = not session.held
        if is_finished:
            state.sessions.remove(session)
    else:
        tube = state.tubes.by_number.get(work.number)  # None: truncated or dropped since
        tasks = [] if tube is None else _taken_before(tube, work.last_token, tasks_max + 1)
        for task in tasks[:tasks_max]:
            come_back(state, task, EventKind.RELEASE_ALL)
            state.signals.signal_ready(task.tube)
        returned, is_finished = min(len(tasks), tasks_max), len(tasks) <= tasks_max
    if not is_finished:
        state.lease_returns.add(work)
    state.steps.left -= returned
    return max(returned, 1)


def _return_of_session(
    state: QueueState, session: QueueSession, work: LeaseReturn, tasks_max: int
) -> int:
    """Return the first leases of an ended session in take order; return their number.

    The change feed records if the client did not return after a change of leader.
    """
    kind = EventKind.STARTUP_RELEASE if session.orphaned else EventKind.SESSION_RELEASE
    tasks = [state.leases[token] for token in islice(session.held, tasks_max)]
    for task in tasks:
        state.signals.signal_ready(task.tube)
        if work.uncounted:
            come_back(state, task, kind)
            task.attempt -= 1
        else:
            hand_back(state, task, kind, SESSION_LOST)
    return len(tasks)


def _taken_before(tube: QueueTube, last_token: int, tasks_max: int) -> list[QueueTask]:
    """Return the first leased tasks of a tube whose tokens are at most ``last_token``."""
    leases = takewhile(lambda lease: lease[0] <= last_token, tube.leases.items())
    return [task for _, task in islice(leases, tasks_max)]
