"""Methods of `AsyncTube` that wait for the outcome of tasks."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft._arguments import text
from taskraft._clock import monotonic
from taskraft._durations import Duration, seconds
from taskraft._error_translation import raise_refused_items, refused_items
from taskraft._handler_slots import waiting_for_tasks
from taskraft._task import Task
from taskraft._task_selection import NamedTasks, count_of, name_selected_task, selector_of
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from taskraft._connection import Connection

WAIT_SECONDS_MAX: Final = 60.0
"""Maximum wait of one call; the limit of the server."""


class AsyncWaits:
    """The methods of `AsyncTube` that wait for the outcome of tasks."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name: Final = text("name", name)
        self._connection = connection

    async def wait(
        self,
        tasks: NamedTasks,
        *,
        wait: Duration | None = None,
        any: bool = False,
        progress: bool = False,
        timeout: Duration | None = None,
    ) -> list[Task]:
        """Wait until tasks have ended or are BURIED; return them in their state at that time.

        The outcome of a task that has ended before the call is known while the task is kept
        (`on_ack`); otherwise it is NOT_KEPT. A wait of more than one minute consists of several
        calls, and the outcome of a task that ends between two of them is known or NOT_KEPT in
        the same way. A handler that calls this method releases its concurrency slot during the
        wait.

        Args:
            tasks: tasks by id or key.
            wait: maximum wait; default: no limit.
            any: True: return when the first task has ended, instead of all.
            progress: True: return also when one task reports progress; implies `any`.
            timeout: time limit of the call beyond the wait, retries included.

        Returns:
            The tasks in order. A task that has not ended in time has the `outcome` TIMEOUT.

        Raises:
            TaskNotFound: the only task never existed, or no task has its key.
            ItemsRefused: some of several tasks never existed, or their keys have no task.
        """
        wait_end = None if wait is None else monotonic() + seconds(wait, "wait")
        selector = selector_of(tasks)
        request = task_service_pb2.WaitTasksRequest(
            tube=self.name,
            selector=selector,
            any=any or progress,
            ended_without_record=True,
            until=(
                task_service_pb2.WaitTasksRequest.PROGRESS
                if progress
                else task_service_pb2.WaitTasksRequest.ENDED
            ),
        )
        if wait_end is not None and _is_over(wait_end):
            return await self._wait_until(wait_end, request, timeout)
        async with waiting_for_tasks():
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
        left = WAIT_SECONDS_MAX if wait_end is None else max(wait_end - monotonic(), 0.0)
        wait_seconds = min(left, WAIT_SECONDS_MAX)
        request.wait_ms = round(wait_seconds * 1_000)
        response = await self._connection.call(
            lambda node: node.tasks.WaitTasks, request, timeout=timeout, wait_seconds=wait_seconds
        )
        refused = refused_items(response.errors)
        for item, error in refused.items():
            name_selected_task(error, self.name, request.selector, item)
        raise_refused_items(refused, count_of(request.selector))
        return list(response.tasks)


def _open(found: Iterable[task_pb2.Task]) -> list[int]:
    """Return the positions of the tasks that have not ended."""
    return [at for at, task in enumerate(found) if task.outcome == task_pb2.Task.TIMEOUT]


def _is_enough(found: list[task_pb2.Task], request: task_service_pb2.WaitTasksRequest) -> bool:
    """Return whether a wait for the first end is satisfied."""
    return request.any and len(_open(found)) < len(found)


def _is_over(wait_end: float | None) -> bool:
    return wait_end is not None and monotonic() >= wait_end
