"""Look at, wait for, and change chosen tasks of one tube, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, Unpack

from taskraft import _settlement, errors
from taskraft._calls import new_request_id
from taskraft._choosing import (
    Chosen,
    Key,
    Keys,
    Named,
    TaskChanges,
    count_of,
    selector_of,
    update_of,
)
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._slots import lending
from taskraft._status import refused_items
from taskraft._task import Task
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from taskraft._calls import Method
    from taskraft._connection import Connection
    from taskraft._nodes import Node
    from taskraft._settlement import Reason
    from taskraft.v1 import error_pb2

WAIT_SECONDS_MAX: Final = 60.0
"""The server waits no longer in one call."""

State: TypeAlias = Literal["ready", "delayed", "buried", "done", "zombie"]
"""A state that an administrator may move a task to."""


class Cancelled(NamedTuple):
    """What a cancellation did."""

    asked: int
    """Holders that were asked to stop."""
    removed: int
    """Tasks that nobody held, and that are gone."""


class _Change(Protocol):
    """A request that changes chosen tasks."""

    request_id: str

    @property
    def selector(self) -> task_pb2.TaskSelector:
        """Which tasks."""
        ...


class _Changed(Protocol):
    """An answer to one."""

    @property
    def errors(self) -> Iterable[error_pb2.ItemError]:
        """The refused items."""
        ...

    @property
    def continue_after_id(self) -> int:
        """Where a filter goes on; 0 at the end."""
        ...


Change = TypeVar("Change", bound=_Change)
Changed = TypeVar("Changed", bound=_Changed)


class AsyncChosenTasks:
    """The part of a tube's handle that is about chosen tasks.

    Tasks are chosen by id, by `Keys`, or by `Where`. A filter that finds many is followed in steps
    until its end; each step is a call of its own.
    """

    def __init__(self, name: str, connection: Connection) -> None:
        self.name: Final = name
        self._connection = connection

    # ---------------------------------------------------------------------------------- look

    async def peek(
        self, task_id: int | None = None, *, key: Key = (), timeout: Duration | None = None
    ) -> Task:
        """Return a task, by id or unique key, without changing it.

        Raises:
            TaskNotFound: There is none, or not any more.
        """
        if (task_id is None) is (not key):
            raise TypeError("peek needs a task_id or a key")
        request = task_service_pb2.GetTasksRequest(
            tube=self.name, selector=selector_of(Keys(key) if task_id is None else task_id)
        )
        response = await self._connection.call(
            lambda node: node.tasks.GetTasks, request, timeout=timeout
        )
        for error in refused_items(response.errors).values():
            raise error
        return Task(response.tasks[0])

    # ---------------------------------------------------------------------------------- wait

    async def wait(
        self,
        tasks: Named,
        *,
        wait: Duration | None = None,
        any: bool = False,
        progress: bool = False,
        timeout: Duration | None = None,
    ) -> list[Task]:
        """Wait until tasks have ended or are buried, and return them as they are then.

        A wait of more than a minute is made of several calls. A task that ends between two of them
        and is not kept (`on_ack`) is not known any more. A handler that waits makes room for
        another one meanwhile.

        Args:
            tasks: By id or key.
            wait: How long; absent without limit.
            any: Return with the first end instead of all.
            progress: Return also when the progress of one of them changes, as with `any`.
            timeout: How long to try to reach the cluster, beyond the wait.

        Returns:
            The tasks in order, with the `outcome` TIMEOUT where the time was over first.

        Raises:
            TaskNotFound: The only task is not known, or not any more.
            ItemsRefused: Some of several are not known.
        """
        wait_end = None if wait is None else time.monotonic() + seconds(wait)
        selector = selector_of(tasks)
        request = task_service_pb2.WaitTasksRequest(
            tube=self.name,
            selector=selector,
            any=any or progress,
            until=(
                task_service_pb2.WaitTasksRequest.PROGRESS
                if progress
                else task_service_pb2.WaitTasksRequest.ENDED
            ),
        )
        if wait_end is not None and _is_over(wait_end):
            return await self._wait_until(wait_end, request, timeout)
        async with lending():
            return await self._wait_until(wait_end, request, timeout)

    async def _wait_until(
        self,
        wait_end: float | None,
        request: task_service_pb2.WaitTasksRequest,
        timeout: Duration | None,
    ) -> list[Task]:
        found = await self._wait_once(request, wait_end, timeout)
        open_tasks = _open(found)
        while open_tasks and not _is_enough(found, request) and not _is_over(wait_end):
            request.selector.CopyFrom(
                task_pb2.TaskSelector(ids=[found[at].id for at in open_tasks])
            )
            again = await self._wait_once(request, wait_end, timeout)
            for at, message in zip(open_tasks, again, strict=True):
                found[at] = message
            open_tasks = _open(found)
        return [Task(message) for message in found]

    async def _wait_once(
        self,
        request: task_service_pb2.WaitTasksRequest,
        wait_end: float | None,
        timeout: Duration | None,
    ) -> list[task_pb2.Task]:
        left = WAIT_SECONDS_MAX if wait_end is None else max(wait_end - time.monotonic(), 0.0)
        wait_seconds = min(left, WAIT_SECONDS_MAX)
        request.wait_ms = round(wait_seconds * 1_000)
        response = await self._connection.call(
            lambda node: node.tasks.WaitTasks, request, timeout=timeout, wait_seconds=wait_seconds
        )
        _raise_refused(refused_items(response.errors), count_of(request.selector))
        return list(response.tasks)

    # -------------------------------------------------------------------------------- change

    async def kick(
        self,
        count: int = 1,
        *,
        ids: Chosen | None = None,
        delay: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Make buried tasks ready again and return how many: the first `count`, or chosen ones."""
        request = task_service_pb2.KickTasksRequest(tube=self.name, delay_ms=milliseconds(delay))
        if ids is None:
            request.count = count
        else:
            request.selector.CopyFrom(selector_of(ids))
        answers = await self._change(lambda node: node.tasks.KickTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def bury(
        self, tasks: Chosen, *, reason: Reason = "", timeout: Duration | None = None
    ) -> int:
        """Take tasks that nobody holds out of circulation; return how many."""
        request = task_service_pb2.BuryTasksRequest(
            tube=self.name, selector=selector_of(tasks), failure=_settlement.failure_of(reason)
        )
        answers = await self._change(lambda node: node.tasks.BuryTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def delete(self, tasks: Chosen, *, timeout: Duration | None = None) -> int:
        """Remove tasks in any state and return how many."""
        request = task_service_pb2.DeleteTasksRequest(tube=self.name, selector=selector_of(tasks))
        answers = await self._change(lambda node: node.tasks.DeleteTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def update(
        self, tasks: Chosen, *, timeout: Duration | None = None, **changes: Unpack[TaskChanges]
    ) -> int:
        """Change held, ready, delayed or buried tasks and return how many; see `TaskChanges`."""
        request = task_service_pb2.UpdateTasksRequest(
            tube=self.name, selector=selector_of(tasks), update=update_of(changes)
        )
        answers = await self._change(lambda node: node.tasks.UpdateTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def snatch(
        self, tasks: Chosen, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Take tasks from their holders, whose leases become stale; return how many."""
        request = task_service_pb2.SnatchTasksRequest(
            tube=self.name, selector=selector_of(tasks), delay_ms=milliseconds(delay)
        )
        answers = await self._change(lambda node: node.tasks.SnatchTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def restart(
        self, tasks: Chosen, *, delay: Duration = 0, timeout: Duration | None = None
    ) -> int:
        """Begin delayed, buried and finished tasks anew, attempts reset; return how many."""
        request = task_service_pb2.RestartTasksRequest(
            tube=self.name, selector=selector_of(tasks), delay_ms=milliseconds(delay)
        )
        answers = await self._change(lambda node: node.tasks.RestartTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def switch(
        self,
        tasks: Chosen,
        state: State,
        *,
        duration: Duration = 0,
        timeout: Duration | None = None,
    ) -> int:
        """Move tasks that nobody holds to a state; return how many.

        Args:
            tasks: Which.
            state: Where to.
            duration: With "delayed": hidden for so long. With "zombie": kept for so long.
            timeout: How long to try.
        """
        request = task_service_pb2.SwitchTasksRequest(
            tube=self.name,
            selector=selector_of(tasks),
            state=task_pb2.Task.State.Value(state.upper()),
            duration_ms=milliseconds(duration),
        )
        answers = await self._change(lambda node: node.tasks.SwitchTasks, request, timeout)
        return sum(answer.count for answer in answers)

    async def cancel(self, tasks: Chosen, *, timeout: Duration | None = None) -> Cancelled:
        """Ask the holders of tasks to stop, and remove those that nobody holds."""
        request = task_service_pb2.CancelTasksRequest(tube=self.name, selector=selector_of(tasks))
        answers = await self._change(lambda node: node.tasks.CancelTasks, request, timeout)
        return Cancelled(
            sum(answer.asked for answer in answers), sum(answer.removed for answer in answers)
        )

    async def _change(
        self,
        method: Callable[[Node], Method[Change, Changed]],
        request: Change,
        timeout: Duration | None,
    ) -> list[Changed]:
        """Make the call, and with a filter those that follow; return all answers.

        Raises:
            TaskraftError: The only task was refused.
            ItemsRefused: Some of several were; the others were changed.
        """
        answers: list[Changed] = []
        refused: dict[int, errors.TaskraftError] = {}
        while True:
            request.request_id = new_request_id()
            answer = await self._connection.call(method, request, timeout=timeout)
            answers.append(answer)
            for error in refused_items(answer.errors).values():
                refused[len(refused)] = error  # with a filter, in order of the ids
            if not answer.continue_after_id:
                break
            request.selector.after_id = answer.continue_after_id
        if request.selector.filter and refused:
            raise errors.ItemsRefused(refused, items=len(refused))
        _raise_refused(refused_items(answers[0].errors), count_of(request.selector))
        return answers

    async def list(
        self,
        filter: str = "",
        *,
        order_by: str = "",
        timeout: Duration | None = None,
    ) -> AsyncIterator[Task]:
        """Yield the tasks that a filter chooses, page by page, as they were at the first page."""
        request = task_service_pb2.ListTasksRequest(
            tube=self.name, filter=filter, order_by=order_by
        )
        while True:
            page = await self._connection.call(
                lambda node: node.tasks.ListTasks, request, timeout=timeout
            )
            for message in page.tasks:
                yield Task(message)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _raise_refused(refused: dict[int, errors.TaskraftError], items: int) -> None:
    if len(refused) == 1 == items:
        raise next(iter(refused.values()))
    if refused:
        raise errors.ItemsRefused(refused, items=items)


def _open(found: Iterable[task_pb2.Task]) -> list[int]:
    """Return the positions of the tasks that have not ended."""
    return [at for at, task in enumerate(found) if task.outcome == task_pb2.Task.TIMEOUT]


def _is_enough(found: list[task_pb2.Task], request: task_service_pb2.WaitTasksRequest) -> bool:
    """Tell whether a wait for the first end has one."""
    return request.any and len(_open(found)) < len(found)


def _is_over(wait_end: float | None) -> bool:
    return wait_end is not None and time.monotonic() >= wait_end
