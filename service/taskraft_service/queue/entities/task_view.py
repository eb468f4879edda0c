"""A task as callers see it, with the extras that most tasks do not have."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.retry_policy import RetryPolicy
from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.values import value


class OnDependencyFailure(IntEnum):
    """What happens to a task when a dependency ends without being acknowledged.

    Numbers are those of taskraft.v1.TaskSpec.OnDependencyFailure; 0 there means CANCEL.
    """

    CANCEL = 1
    RUN = 2


@value
class Awaited:
    """One open dependency of a task, by tube and id as the producer named it.

    ``number`` identifies the set of its dependents; it stays the same when the task is moved.
    """

    number: int
    tube: str
    id: int


@value
class Waiting:
    """The open dependencies of a held task.

    Args:
        open: dependencies that have not ended; at least one.
        on_failure: what happens if one of them fails.
        delay_ms: delay of the task after the last of them has ended.
    """

    open: tuple[Awaited, ...]
    on_failure: OnDependencyFailure
    delay_ms: int


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
