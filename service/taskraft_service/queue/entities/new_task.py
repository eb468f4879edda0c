"""Define one task of a put, with its dependencies."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.retry_policy import Position, RetryPolicy
from taskraft_service.queue.entities.task_state import State
from taskraft_service.queue.entities.task_view import OnDependencyFailure
from taskraft_service.queue.values import value


@value
class TaskReference:
    """A task, by its tube and id."""

    tube: str
    id: int


@value
class ItemReference:
    """An earlier item of the same put, or of all puts of the same batch, counted from 0."""

    item: int


Reference: TypeAlias = TaskReference | ItemReference


@value
class Dependencies:
    """The dependencies of a new task, and the effect of a failed dependency."""

    on: tuple[Reference, ...]
    on_failure: OnDependencyFailure = OnDependencyFailure.CANCEL


class OnConflict(IntEnum):
    """Effect of a put when an existing task has the unique key.

    Numbers are those of taskraft.v1.TaskSpec.OnConflict; 0 there means FAIL.
    """

    FAIL = 1
    RETURN_EXISTING = 2
    RESTART_IF_FINISHED = 3
    REPLACE_IF_WAITING = 4


@value
class UniqueAmong:
    """Defines which existing tasks with the same unique key block a new task.

    Args:
        states: tasks in these states.
        ms: tasks that were put within this time, in milliseconds.
    """

    states: tuple[State, ...] = (
        State.HELD,
        State.READY,
        State.DELAYED,
        State.TAKEN,
        State.BURIED,
    )
    ms: int = FOREVER_MS


AMONG_UNFINISHED: Final = UniqueAmong()


@value
class NewTask:
    """One task of a put; ``body`` is the producer's TaskSpec as received, opaque to the queue."""

    body: bytes
    payload_bytes: int
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    ttr_ms: int | None = None
    visible_at_ms: int | None = None
    type: str = ""
    subqueue: str = ""
    position: Position = Position.IN_ORDER
    retry: RetryPolicy | None = None
    unique_key: tuple[str, ...] = ()
    group: str = ""
    on_conflict: OnConflict = OnConflict.FAIL
    unique_among: UniqueAmong = AMONG_UNFINISHED
    dependencies: Dependencies | None = None
