"""Return taken tasks to their tube: releases, and retries after lost leases and rejections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.event_cause import NO_CAUSE, EventCause, failure_cause
from taskraft_service.queue.entities.instants import after, lengthened, postponed
from taskraft_service.queue.entities.life_cycle import EventKind, Operation
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.entities.tube_counters import CountedOperation
from taskraft_service.queue.entities.tube_options import TtlPolicy, TtlScope
from taskraft_service.queue.operations.settlements import Release
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.transitions.endings import bury, end, note_failure
from taskraft_service.queue.transitions.moving import bring_to_dead_letters, dead_letters_of
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
"""The release of a task that its holder did not settle."""


def come_back(state: QueueState, task: QueueTask, kind: EventKind) -> None:
    """Make a taken task READY at its old position, as a plain release does."""
    put_back(state, task, kind, UNSAID, 0)


def put_back(
    state: QueueState,
    task: QueueTask,
    kind: EventKind,
    release: Release,
    delay_ms: int,
    cause: EventCause = NO_CAUSE,
) -> None:
    """Make a taken task READY or DELAYED, at its old position or at the requested one.

    A delay overrides the position FRONT, as it does for a put.
    """
    delay_ms = renew_ttl(state, task, release, delay_ms)
    position = release.position
    if position is Position.BACK:
        task.tube.counters.note(CountedOperation.REQUEUE)
    if position is Position.BACK or (position is Position.FRONT and delay_ms == 0):
        task.order = (task.tube.lane(position), *task.order[1:])
    if delay_ms > 0:
        task.visible_at_ms = after(state.now_ms, delay_ms)
    give_back(state, task, kind, cause, is_delayed=delay_ms > 0)


def give_back(
    state: QueueState,
    task: QueueTask,
    kind: EventKind,
    cause: EventCause = NO_CAUSE,
    *,
    is_delayed: bool = False,
) -> None:
    """Make a taken task READY or DELAYED; a task with a requested cancellation ends instead."""
    if task.extras.cancel_requested:
        end(state, task, Operation.CANCEL_RETURNED, TaskOutcome.DELETED, kind, cause)
    else:
        operation = RETURNS[kind][is_delayed]
        transition(state, task.tube, (task,), operation, kind, cause)


def renew_ttl(state: QueueState, task: QueueTask, release: Release, delay_ms: int) -> int:
    """Apply the TTL policy of a release with a delay, or of the tube.

    Returns the remaining delay: a delay does not outlast an unchanged time to live.
    """
    delay_ms = max(delay_ms, 0)
    options = task.tube.options
    policy = release.ttl_policy or options.ttl_policy
    if policy is TtlPolicy.ADD_DELAY:
        task.ttl_ms = lengthened(task.ttl_ms, delay_ms)
        task.expire_at_ms = postponed(task.expire_at_ms, delay_ms)
    elif policy is TtlPolicy.RESET:
        fresh_ms = options.ttl_ms if release.ttl_ms is None else release.ttl_ms
        task.ttl_ms = lengthened(fresh_ms, delay_ms)
        task.expire_at_ms = after(state.now_ms, task.ttl_ms)
    else:
        assert policy is TtlPolicy.KEEP_DEADLINE
        delay_ms = min(delay_ms, max(task.expire_at_ms - state.now_ms, 0))
    return delay_ms


LEASE_LOST: Final = Failure("LEASE_EXPIRED", "the time to run was over")
SESSION_LOST: Final = Failure("SESSION_ENDED", "the session that held the task ended")
EXHAUSTED: Final = "ATTEMPTS_EXHAUSTED"
"""Reason in the feed if the last failure of the task has no class."""

GROWTH_MAX: Final = 1_024
"""Number of failed attempts after which the delay stops growing."""
_seed = Struct(">IQI")


def policy_of(task: QueueTask) -> RetryPolicy:
    """Return the retry policy of the task, or of its tube."""
    own = task.extras.retry
    return task.tube.options.retry if own is None else own


def backoff_ms(policy: RetryPolicy, task: QueueTask) -> int:
    """Return the delay after an attempt that failed and was counted, in ms.

    The jitter is a hash of tube, task and attempt, so all replicas compute the same delay.
    """
    if policy.backoff_ms == 0:
        return 0
    steps = min(max(task.extras.failed_attempts - 1, 0), GROWTH_MAX)
    grown_ms: int = policy.backoff_ms * policy.factor_percent**steps // 100**steps
    delay_ms = min(grown_ms, policy.backoff_ms_max)
    if policy.jitter_percent > 0:
        seed = _seed.pack(task.tube.number, task.id, task.attempt & 0xFFFF_FFFF)
        share = int.from_bytes(blake2b(seed, digest_size=4).digest(), "big")
        delay_ms -= (delay_ms * policy.jitter_percent * share // 100) >> 32
    return delay_ms


def hand_back(state: QueueState, task: QueueTask, kind: EventKind, failure: Failure) -> None:
    """Return a taken task whose lease was lost; ``failure`` is the reason.

    The attempt failed, unless the lease was lost because a client did not return after a change
    of leader.
    """
    note_failure(state, task, failure)
    if _has_outlived(state, task):
        give_back(
            state, task, kind, failure_cause(failure)
        )  # the time to live ends the task before the next take
    elif task.extras.cancel_requested or kind is EventKind.STARTUP_RELEASE:
        # A cancelled task ends even if it has no attempts left.
        put_back(state, task, kind, UNSAID, 0, failure_cause(failure))
    else:
        try_again(state, task, kind, UNSAID, failure)


def _has_outlived(state: QueueState, task: QueueTask) -> bool:
    """Return whether the time to live of a task with a lost lease is over.

    False if the time to live counts only in READY and restarts with each release.
    """
    if task.expire_at_ms > state.now_ms:
        return False
    options = task.tube.options
    return options.ttl_scope is not TtlScope.READY_ONLY or options.ttl_policy is not TtlPolicy.RESET


def try_again(
    state: QueueState,
    task: QueueTask,
    kind: EventKind,
    release: Release,
    failure: Failure | None,
) -> TaskOutcome:
    """End a failed attempt: schedule the next attempt, or give up if none is left.

    The release overrides the policy, except for the maximum number of attempts. The failure is
    already stored in the task. Returns NONE if there is a next attempt, else as ``give_up``.
    """
    policy = policy_of(task)
    is_last = is_last_attempt(task, failure)
    task.tube.counters.note(CountedOperation.FAIL)
    task.extras = replace(task.extras, failed_attempts=task.extras.failed_attempts + 1)
    cause = replace(failure_cause(failure, EXHAUSTED if is_last else ""), attempt_failed=True)
    if is_last:
        return give_up(state, task, kind, policy.exhausted, cause)
    delay_ms = backoff_ms(policy, task) if release.delay_ms is None else release.delay_ms
    take_position(task, release)
    put_back(state, task, kind, release, delay_ms, cause)
    return TaskOutcome.NONE


def take_position(task: QueueTask, release: Release) -> None:
    """Give a task the position of its retry policy, unless the release has a position."""
    position = policy_of(task).position
    if release.position is Position.IN_ORDER and position is not Position.IN_ORDER:
        task.order = (task.tube.lane(position), *task.order[1:])


def forget_attempts(task: QueueTask) -> None:
    """Reset the numbers of attempts and of failed attempts of a task to 0."""
    task.attempt = 0
    if task.extras.failed_attempts:
        task.extras = replace(task.extras, failed_attempts=0)


def is_last_attempt(task: QueueTask, failure: Failure | None) -> bool:
    """Return whether the current attempt is the last if it fails, or the failure is fatal."""
    used_up = 0 < policy_of(task).attempts_max <= task.extras.failed_attempts + 1
    return used_up or (failure is not None and failure.fatal)


def give_up(
    state: QueueState, task: QueueTask, kind: EventKind, exhausted: Exhausted, cause: EventCause
) -> TaskOutcome:
    """End the attempts of a task: bury it, remove it, or move it to the dead-letter tube.

    The task is buried if there is no dead-letter tube or if that tube lacks capacity. Returns
    BURIED_OUT if the task is buried, else FAILED.
    """
    if exhausted is Exhausted.REMOVE:
        end(state, task, Operation.EXHAUST_REMOVE, TaskOutcome.FAILED, kind, cause)
        return TaskOutcome.FAILED
    if exhausted is Exhausted.DEAD_LETTER:
        target = dead_letters_of(state, task)
        if target is not None and target.refusal_to_grow(1, task.payload_bytes) is None:
            bring_to_dead_letters(state, task, target, kind, cause)
            return TaskOutcome.FAILED
    operation = Operation.REJECT if kind is EventKind.BURY else Operation.EXHAUST
    bury(state, task, operation, None, cause, kind)
    return TaskOutcome.BURIED_OUT
