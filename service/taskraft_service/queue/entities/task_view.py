"""Name what is known of a task: its state, its end, its rare attributes, and how it is shown."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from taskraft_service.queue.entities.dependencies import Waiting
from taskraft_service.queue.entities.retry_policy import RetryPolicy
from taskraft_service.queue.values import value


class State(IntEnum):
    """States of a task; numbers are those of taskraft.v1.Task.State. GONE: it does not exist."""

    GONE = 0
    READY = 1
    DELAYED = 2
    TAKEN = 3
    BURIED = 4
    DONE = 5
    ZOMBIE = 6
    HELD = 7


class TaskOutcome(IntEnum):
    """How a task ended; numbers are those of taskraft.v1.Task.Outcome. NONE: not ended."""

    NONE = 0
    PROCESSED = 1
    FAILED = 2
    BURIED_OUT = 3
    EXPIRED = 4
    DELETED = 5
    TIMEOUT = 6
    """Told to those who waited in vain; no task has it."""
    DEPENDENCY_FAILED = 7


@value
class Failure:
    """Why an attempt failed; ``fatal``: another attempt is of no use."""

    type: str = ""
    message: str = ""
    fatal: bool = False


@value
class TaskProgress:
    """How far a taken task has come, in hundredths of a percent, and a word about it."""

    basis_points: int = 0
    note: str = ""


@value
class TaskOrigin:
    """Where a dead letter comes from: the tube that gave it up, its id and its unique key there."""

    tube: str
    task_id: int
    unique_key: tuple[str, ...] = ()


@value
class Extras:
    """The attributes of a task that most tasks do not have.

    A value: what changes one of them makes a new one. Most tasks share ``NO_EXTRAS``, so that they
    neither carry nor write any.

    Args:
        failure: the last one that was reported, or that the server found.
        times_buried: how often the task was buried.
        progress: what the last touch told.
        result: what the acknowledgement stored.
        result_content_type: media type of the result.
        outcome: how the task ended, where it is kept.
        retain_until_ms: when a kept task is removed; 0: never.
        unique_key: unique among tasks of the tube, as the put said.
        group: what the task belongs to.
        group_number: tells that group from others that have had its name.
        retry: overrides the tube's policy.
        cancel_requested: somebody asked the holder to stop.
        origin: where it was given up, as long as it has not gone back.
        dependents: number of the set of tasks that wait for the end of this one; 0: none does.
        waiting: what the task waits for itself; None: for no other task.
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
    """A task as it is shown; times are instants of the cluster's clock, 0 where there is none."""

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
        """How many bytes it shows of what producers and consumers said."""
        extras = self.extras
        if extras is NO_EXTRAS:
            return len(self.body)
        failure, result = extras.failure, extras.result
        said = len(failure.message.encode()) if failure is not None else 0
        return len(self.body) + len(result or b"") + said
