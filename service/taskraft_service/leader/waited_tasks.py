"""The tasks for which calls wait, and their number in total and by principal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from taskraft_service import limits
from taskraft_service.leader.principal_counts import PrincipalCounts
from taskraft_service.limits import CONTENT_BYTES_MAX
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
    content: WaitedContent
    known: dict[int, TaskView] = field(default_factory=dict)
    open: dict[AwaitedTask, int] = field(default_factory=dict)
    dropped_bytes: int = 0
    """Size of the contents of known outcomes that the wait did not keep."""
    exceeded: tuple[str, int] | None = None
    """The name and the value of the maximum of all waits because of which content was not kept."""
    _kept_bytes: int = 0
    _is_counted: bool = True

    def learn(self, task_id: int, view: TaskView) -> None:
        """Add the outcome of a task; keep its content if all maximums allow that.

        A wait keeps at most ``CONTENT_BYTES_MAX``. After the first content that is not kept, no
        later one is kept.
        """
        content_bytes = view.content_bytes
        if not self.dropped_bytes and self._kept_bytes + content_bytes <= CONTENT_BYTES_MAX:
            self.exceeded = self.content.exceeded(content_bytes, self.query.principal)
            is_kept = self.exceeded is None
        else:
            is_kept = False
        if is_kept:
            self._kept_bytes += content_bytes
            if self._is_counted:
                self.content.add(content_bytes, self.query.principal)
        else:
            self.dropped_bytes += content_bytes
            view = view.without_content()
        self.known[task_id] = view

    def stop_counting(self) -> None:
        """Count the kept content no longer."""
        if self._is_counted:
            self._is_counted = False
            self.content.add(-self._kept_bytes, self.query.principal)

    def is_over(self) -> bool:
        """Return whether the wait has its result."""
        return not self.open or (self.query.any_of_them and bool(self.known))


class WaitedContent(PrincipalCounts):
    """The content of the outcomes that waiting calls keep, in bytes."""

    __slots__ = ()

    def exceeded(self, content_bytes: int, principal: str) -> tuple[str, int] | None:
        """Return the name and the value of the maximum that more content would exceed, or None."""
        total, own = self.count_with(content_bytes, principal)
        if total > limits.WAITED_CONTENT_BYTES_MAX:
            return "waited_content_bytes_max", limits.WAITED_CONTENT_BYTES_MAX
        if own > limits.WAITED_CONTENT_BYTES_SHARE_MAX:
            return "waited_content_bytes_share_max", limits.WAITED_CONTENT_BYTES_SHARE_MAX
        return None


class WaitedTasks(PrincipalCounts):
    """The number of tasks for which calls wait; a task counts once per waiting call.

    The tasks of a put that is in flight are reserved, because the call waits for the tasks as soon
    as the put is applied.
    """

    __slots__ = ("_reserved",)

    def __init__(self) -> None:
        super().__init__()
        self._reserved = 0

    def __len__(self) -> int:
        """Return the number without reserved tasks."""
        return super().__len__() - self._reserved

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
