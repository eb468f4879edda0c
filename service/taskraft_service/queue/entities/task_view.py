"""The state, outcome and extras of a task, and a task as callers see it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.dependencies import Waiting
from taskraft_service.queue.entities.retry_policy import RetryPolicy
from taskraft_service.queue.values import value


class State(IntEnum):
    """State of a task; numbers are those of taskraft.v1.Task.State.

    GONE: it does not exist.
    """

    GONE = 0
    READY = 1
    DELAYED = 2
    TAKEN = 3
    BURIED = 4
    DONE = 5
    ZOMBIE = 6
    HELD = 7


class TaskOutcome(IntEnum):
    """How a task ended; numbers are those of taskraft.v1.Task.Outcome.

    NONE: not ended.
    """

    NONE = 0
    PROCESSED = 1
    FAILED = 2
    BURIED_OUT = 3
    EXPIRED = 4
    DELETED = 5
    TIMEOUT = 6
    """Answer to a wait that timed out; no task has it."""
    DEPENDENCY_FAILED = 7


@value
class Failure:
    """Why an attempt failed; ``fatal``: further attempts are useless."""

    type: str = ""
    message: str = ""
    fatal: bool = False


@value
class TaskProgress:
    """Progress of a taken task, in hundredths of a percent, with a note."""

    basis_points: int = 0
    note: str = ""


@value
class TaskOrigin:
    """Origin of a dead letter: the tube that gave it up, its id and its unique key there."""

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
        times_buried: number of times the task was buried.
        progress: the progress of the last touch.
        result: the result of the acknowledgement.
        result_content_type: media type of the result.
        outcome: how a kept task ended.
        retain_until_ms: instant at which a kept task is removed; 0: never.
        unique_key: unique among the tasks of the tube that ``UniqueAmong`` names.
        group: name of the task's group.
        group_number: number of the group; names can be reused, numbers cannot.
        retry: overrides the retry policy of the tube.
        cancel_requested: the holder is asked to stop.
        origin: origin of a dead letter, until it returns.
        dependents: number of the set of dependents; 0: no task depends on this one.
        waiting: open dependencies; None: the task has none.
    """

    failure: Failure | None = None
    times_buried: int = 0
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
        """Bytes of payload, result and failure message."""
        extras = self.extras
        if extras is NO_EXTRAS:
            return len(self.body)
        failure, result = extras.failure, extras.result
        said = len(failure.message.encode()) if failure is not None else 0
        return len(self.body) + len(result or b"") + said
