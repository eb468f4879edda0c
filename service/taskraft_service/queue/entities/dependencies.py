"""Dependencies of a task: the tasks that must end before it can be taken."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from taskraft_service.queue.values import value


class OnDependencyFailure(IntEnum):
    """What happens to a task when a dependency ends without being acknowledged.

    Numbers are those of taskraft.v1.TaskSpec.OnDependencyFailure; 0 there means CANCEL.
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
    """The dependencies of a new task, and what happens if one of them fails."""

    on: tuple[Reference, ...]
    on_failure: OnDependencyFailure = OnDependencyFailure.CANCEL


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
