"""Methods of `AsyncTube` that move selected tasks to another tube, and dead letters back."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from typing import Final

from taskraft._async_selected_tasks import AsyncSelectedTasks
from taskraft._durations import Duration, milliseconds
from taskraft._retry import Position, position_of
from taskraft._task_selection import TaskChanges, TaskSelection, Where, selector_of, update_of
from taskraft.v1 import task_service_pb2

DEAD_LETTERS: Final = Where("origin:*")
"""Selects all tasks that came from another tube."""


class AsyncMoves(AsyncSelectedTasks):
    """The methods of `AsyncTube` that move tasks without a lease."""

    async def move(
        self,
        tasks: TaskSelection,
        to: str,
        *,
        delay: Duration | None = None,
        position: Position | None = None,
        renew_times: bool = False,
        changes: TaskChanges | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Move READY, DELAYED and BURIED tasks to another tube; return the number of moved tasks.

        In the other tube they are new tasks: they have new ids, and their attempts start at 0. They
        keep their unique keys.

        Args:
            tasks: tasks to move.
            to: name of the other tube.
            delay: delay in the other tube; 0: READY at once. Default: a DELAYED task keeps its due
                time, the other tasks are READY.
            position: before or behind all READY tasks of the other tube.
            renew_times: True: use the default TTL and TTR of the other tube. False: keep the task's
                own.
            changes: further changes of the tasks, without a delay.
            timeout: time limit of the call, retries included.

        Raises:
            TaskraftError: the only task was refused, or all tasks were refused.
            ItemsRefused: some of several tasks were refused; the other tasks were moved.
        """
        request = task_service_pb2.MoveTasksRequest(
            tube=self.name, selector=selector_of(tasks), move_to=to, renew_times=renew_times
        )
        return await self._move(request, delay, position, changes, timeout, tasks)

    async def redrive(
        self,
        tasks: TaskSelection = DEAD_LETTERS,
        *,
        delay: Duration | None = None,
        position: Position | None = None,
        changes: TaskChanges | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Move dead letters back to the tubes that they came from; return the number moved.

        A moved task starts again with the default times of that tube and with its unique key. Tasks
        that are not dead letters are not moved. Arguments and errors are those of `move`.
        """
        request = task_service_pb2.MoveTasksRequest(
            tube=self.name, selector=selector_of(tasks), to_origin=True
        )
        return await self._move(request, delay, position, changes, timeout, tasks)

    async def _move(
        self,
        request: task_service_pb2.MoveTasksRequest,
        delay: Duration | None,
        position: Position | None,
        changes: TaskChanges | None,
        timeout: Duration | None,
        tasks: TaskSelection,
    ) -> int:
        if delay is not None:
            request.delay_ms = milliseconds(delay, "delay")
        if position is not None:
            request.position = position_of(position)
        if changes is not None:
            request.update.CopyFrom(update_of(changes))
        answers = await self._change(lambda node: node.tasks.MoveTasks, request, timeout, tasks)
        return sum(answer.count for answer in answers)
