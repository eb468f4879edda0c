"""Return taken tasks to the order of their tube, and renew their time to live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from taskraft_service.queue.entities.instants import after, lengthened, postponed
from taskraft_service.queue.entities.life_cycle import EventKind, Operation
from taskraft_service.queue.entities.position import Position
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.entities.task_view import TaskOutcome
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_options import TtlPolicy
from taskraft_service.queue.operations.settlements import Release
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.endings import end
from taskraft_service.queue.transitions.transition import transition

RETURNS: Final[Mapping[EventKind, Sequence[Operation]]] = {
    EventKind.RELEASE: (Operation.RELEASE, Operation.RELEASE_DELAYED),
    EventKind.TTR_EXPIRED: (Operation.LEASE_END, Operation.LEASE_END_DELAYED),
    EventKind.SESSION_RELEASE: (Operation.SESSION_END, Operation.SESSION_END_DELAYED),
    EventKind.STARTUP_RELEASE: (Operation.SESSION_END, Operation.SESSION_END_DELAYED),
    EventKind.RELEASE_ALL: (Operation.RELEASE_ALL,),
    EventKind.SNATCH: (Operation.SNATCH, Operation.SNATCH_DELAYED),
}
"""Operations that make a taken task READY or DELAYED, by the event that ends the lease."""
UNSAID: Final = Release(())
"""The release of a task whose holder did not settle it."""


def come_back(ledger: QueueState, task: QueueTask, kind: EventKind) -> None:
    """Make a taken task READY at its old position, as a plain release does."""
    put_back(ledger, task, kind, UNSAID, 0)


def put_back(
    ledger: QueueState,
    task: QueueTask,
    kind: EventKind,
    wish: Release,
    delay_ms: int,
    reason: str = "",
) -> None:
    """Make a taken task READY or DELAYED, at its old position or at the requested one.

    A delay overrides the position FRONT, as it does for a put.
    """
    delay_ms = renew_ttl(ledger, task, wish, delay_ms)
    position = wish.position
    if position is Position.BACK:
        task.tube.counters.note(CountedOperation.REQUEUE)
    if position is Position.BACK or (position is Position.FRONT and delay_ms == 0):
        task.order = (task.tube.lane(position), *task.order[1:])
    if delay_ms > 0:
        task.visible_at_ms = after(ledger.now_ms, delay_ms)
    give_back(ledger, task, kind, reason, is_delayed=delay_ms > 0)


def give_back(
    ledger: QueueState,
    task: QueueTask,
    kind: EventKind,
    reason: str = "",
    *,
    is_delayed: bool = False,
) -> None:
    """Make a taken task READY or DELAYED; a task with a requested cancellation ends instead."""
    if task.extras.cancel_requested:
        end(ledger, task, Operation.CANCEL_RETURNED, TaskOutcome.DELETED, kind, reason)
    else:
        operation = RETURNS[kind][is_delayed]
        transition(ledger, task.tube, (task,), operation, kind, reason)


def renew_ttl(ledger: QueueState, task: QueueTask, wish: Release, delay_ms: int) -> int:
    """Apply the TTL policy of a release with a delay, or of the tube.

    Returns the remaining delay: a delay does not outlast an unchanged time to live.
    """
    delay_ms = max(delay_ms, 0)
    options = task.tube.options
    policy = wish.ttl_policy or options.ttl_policy
    if policy is TtlPolicy.ADD_DELAY:
        task.ttl_ms = lengthened(task.ttl_ms, delay_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
    elif policy is TtlPolicy.RESET:
        fresh_ms = options.ttl_ms if wish.ttl_ms is None else wish.ttl_ms
        task.ttl_ms = lengthened(fresh_ms, delay_ms)
        task.expire_at_ms = after(ledger.now_ms, task.ttl_ms)
    else:
        assert policy is TtlPolicy.KEEP_DEADLINE
        delay_ms = min(delay_ms, max(task.expire_at_ms - ledger.now_ms, 0))
    return delay_ms
