"""The tasks for which calls wait, and their number in total and by principal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from taskraft_service.queue.entities.task_view import TaskView

TaskKey: TypeAlias = tuple[int, int]
"""Tube number and task id."""


@dataclass(slots=True, frozen=True)
class OutcomeQuery:
    """The tasks of a tube that a caller waits for.

    Args:
        tube: name of the tube.
        ids: task ids.
        any_of_them: the first outcome ends the wait, instead of the last.
        progress: a progress report of a task ends the wait for that task too.
        principal: the principal of the caller; empty without access control.
    """

    tube: str
    ids: Sequence[int]
    any_of_them: bool = False
    progress: bool = False
    principal: str = ""


@dataclass(slots=True, eq=False)
class AwaitedTask:
    """A task for which calls wait, and its outcome once it has ended.

    A move to another tube changes the key.
    """

    key: TaskKey
    progress: bool
    """Whether a progress report ends the waits, too."""
    waits: dict[OutcomeWait, None] = field(default_factory=dict)
    """The waiting calls; does not change after the task has ended."""
    is_over: bool = False
    """Whether the task has ended or is unknown; the calls are told, or will be told."""
    outcome: TaskView | None = None
    """The task with its outcome; None: it has not ended, or is unknown."""


@dataclass(slots=True, eq=False)
class OutcomeWait:
    """One waiting call: the known outcomes, and the tasks for which it still waits.

    ``open`` maps each of these tasks to the id that the caller asked for.
    """

    query: OutcomeQuery
    future: asyncio.Future[None]
    known: dict[int, TaskView] = field(default_factory=dict)
    open: dict[AwaitedTask, int] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Return whether the wait has its result."""
        return not self.open or (self.query.any_of_them and bool(self.known))


class WaitedTasks:
    """The number of tasks for which calls wait; a task counts once per waiting call.

    The tasks of a put that is in flight are reserved, because the call waits for the tasks as soon
    as the put is applied.
    """

    __slots__ = ("_of_principals", "_reserved", "_total")

    def __init__(self) -> None:
        self._of_principals: dict[str, int] = {}
        self._total = self._reserved = 0

    def __len__(self) -> int:
        """Return the number without reserved tasks."""
        return self._total - self._reserved

    def count_with(self, tasks: int, principal: str) -> tuple[int, int]:
        """Return how many tasks are waited for if a call waits for more tasks.

        Returns:
            The tasks of all calls, and those of the principal; 0 for the empty principal.
        """
        own = self._of_principals.get(principal, 0) + tasks
        return self._total + tasks, own if principal else 0

    def add(self, tasks: int, principal: str) -> None:
        """Count tasks for which a call of a principal begins to wait; negative: ceases to wait."""
        self._total += tasks
        own = self._of_principals.get(principal, 0) + tasks
        if own:
            self._of_principals[principal] = own
        else:
            self._of_principals.pop(principal, None)

    @contextmanager
    def reserved(self, tasks: int, principal: str) -> Iterator[None]:
        """Count the tasks of a put within the context."""
        self._reserved += tasks
        self.add(tasks, principal)
        try:
            yield
        finally:
            self._reserved -= tasks
            self.add(-tasks, principal)
