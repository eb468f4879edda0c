"""Define the read-only view of a task, and the optional attributes that most tasks lack."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.retry_policy import RetryPolicy
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.values import value


class OnDependencyFailure(IntEnum):
    """Effect on a task if one of its dependencies ends without being acknowledged.

    Numbers are those of taskraft.v1.TaskSpec.OnDependencyFailure; 0 there means CANCEL.
    """

    CANCEL = 1
    RUN = 2


@value
class Awaited:
    """One open dependency of a task, by the tube and id that the producer specified.

    ``number`` identifies the set of dependents of this task, and does not change when the task is
    moved.
    """

    number: int
    tube: str
    id: int


@value
class Waiting:
    """The open dependencies of a held task.

    Args:
        open: dependencies that have not ended; at least one.
        on_failure: effect of a failed dependency.
        delay_ms: delay of the task after the last of them has ended.
    """

    open: tuple[Awaited, ...]
    on_failure: OnDependencyFailure
    delay_ms: int


@value
class Failure:
    """The reason why an attempt failed; ``fatal`` means that no further attempt is made."""

    type: str = ""
    message: str = ""
    fatal: bool = False


ATTEMPT_FAILURES_MAX: Final = 5
"""Maximum number of failures that a task keeps, the last failure included."""
ATTEMPT_FAILURE_BYTES_MAX: Final = 512
"""Maximum size of the message of a kept failure, in bytes of UTF-8; longer messages are cut."""


@value
class AttemptFailure:
    """A failure that ended an attempt, or that came with a burial.

    Args:
        attempt: number of the attempt.
        at_ms: instant of the failure.
        type: type of the failure.
        message: the first ``ATTEMPT_FAILURE_BYTES_MAX`` bytes of the message.
        fatal: no further attempt was made.
    """

    attempt: int
    at_ms: int
    type: str
    message: str
    fatal: bool


@value
class TaskProgress:
    """Progress of a taken task, in hundredths of a percent, with a note."""

    basis_points: int = 0
    note: str = ""


@value
class TaskOrigin:
    """Origin of a dead letter: its former tube, and its id and unique key in that tube."""

    tube: str
    task_id: int
    unique_key: tuple[str, ...] = ()


@value
class Extras:
    """Attributes that most tasks do not have.

    Immutable: a change creates a new value. Tasks without extras share ``NO_EXTRAS`` and store
    nothing.

    Args:
        failure: the last failure that a consumer or the queue reported.
        failures: the last failures of attempts, oldest first, at most ``ATTEMPT_FAILURES_MAX``.
        times_buried: number of times the task was buried.
        failed_attempts: attempts that failed since the first put or the last restart.
        progress: the progress of the last touch.
        result: the result of the acknowledgement.
        result_content_type: media type of the result.
        outcome: outcome of a kept task.
        retain_until_ms: instant at which a kept task is removed; 0: never.
        unique_key: key that is unique among the tasks of the tube that ``UniqueAmong`` selects.
        group: name of the task's group.
        group_number: number of the group; names can be reused, numbers cannot.
        retry: overrides the retry policy of the tube.
        cancel_requested: the holder is asked to stop.
        origin: origin of a dead letter, until it returns.
        dependents: number of the set of dependents; 0: no task depends on this task.
        waiting: open dependencies; None: the task has none.
        owner: principal that has put the task with its unique key; None: not known.
        lease_ms: time to run of the lease, from its take, if the task has no time to run; 0: none.
    """

    failure: Failure | None = None
    times_buried: int = 0
    failed_attempts: int = 0
    progress: TaskProgress | None = None
    result: bytes | None = None
    result_content_type: str = ""
    outcome: TaskOutcome = TaskOutcome.NONE
    retain_until_ms: int = 0
    unique_key: tuple[str, ...] = ()
    group: str = ""
    group_number: int = 0
    retry: RetryPolicy | None = None
    cancel_requested: bool = False
    origin: TaskOrigin | None = None
    dependents: int = 0
    waiting: Waiting | None = None
    failures: tuple[AttemptFailure, ...] = ()
    owner: str | None = None
    lease_ms: int = 0

    def with_failure(self, failure: Failure, attempt: int, now_ms: int) -> Extras:
        """Return the extras after a failure of an attempt."""
        cut = failure.message.encode()[:ATTEMPT_FAILURE_BYTES_MAX].decode(errors="ignore")
        latest = AttemptFailure(attempt, now_ms, failure.type, cut, failure.fatal)
        failures = (*self.failures, latest)[-ATTEMPT_FAILURES_MAX:]
        return replace(self, failure=failure, failures=failures)


NO_EXTRAS: Final = Extras()


@value
class TaskView:
    """A task as callers see it; times are instants of the cluster's clock, 0 if not set."""

    tube: str
    id: int
    body: bytes
    state: State
    token: int
    lease_until_ms: int
    attempt: int
    created_ms: int
    since_ms: int
    visible_at_ms: int
    expire_at_ms: int
    session_id: str
    priority: int
    ttr_ms: int
    ttl_ms: int
    extras: Extras = NO_EXTRAS

    @property
    def content_bytes(self) -> int:
        """Bytes of payload, result and failure messages."""
        extras = self.extras
        if extras is NO_EXTRAS:
            return len(self.body)
        failure, result = extras.failure, extras.result
        said = len(failure.message.encode()) if failure is not None else 0
        said += sum([len(one.message.encode()) for one in extras.failures])
        return len(self.body) + len(result or b"") + said

    def without_content(self) -> TaskView:
        """Return the task with its tube, id, state and outcome only."""
        return TaskView(
            tube=self.tube,
            id=self.id,
            body=b"",
            state=self.state,
            token=0,
            lease_until_ms=0,
            attempt=0,
            created_ms=0,
            since_ms=0,
            visible_at_ms=0,
            expire_at_ms=0,
            session_id="",
            priority=0,
            ttr_ms=0,
            ttl_ms=0,
            extras=Extras(outcome=self.extras.outcome),
        )
