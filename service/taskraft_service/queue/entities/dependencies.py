"""Name the tasks that must end before another one may be taken."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from taskraft_service.queue.values import value


class OnDependencyFailure(IntEnum):
    """What becomes of a task when one that it depends on ends otherwise than acknowledged.

    Numbers are those of taskraft.v1.TaskSpec.OnDependencyFailure; 0 there is CANCEL.
    """

    CANCEL = 1
    RUN = 2


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
    """The tasks that a new one depends on, and what becomes of it if one of them fails."""

    on: tuple[Reference, ...]
    on_failure: OnDependencyFailure = OnDependencyFailure.CANCEL


@value
class Awaited:
    """A task that another one waits for, as it was named.

    ``number`` is that of the set of those that wait for it; it stays when the task is moved.
    """

    number: int
    tube: str
    id: int


@value
class Waiting:
    """What a held task waits for.

    Args:
        open: the tasks that have not ended, at least one.
        on_failure: what becomes of the task if one of them fails.
        delay_ms: how long the task is hidden after the last of them has ended.
    """

    open: tuple[Awaited, ...]
    on_failure: OnDependencyFailure
    delay_ms: int
