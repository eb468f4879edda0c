"""Move chosen tasks to another tube, and dead letters back, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from typing import Final

from taskraft._async_selected_tasks import AsyncSelectedTasks
from taskraft._durations import Duration, milliseconds
from taskraft._task_selection import TaskChanges, TaskSelection, Where, selector_of, update_of
from taskraft._task_spec import Position, position_of
from taskraft.v1 import task_service_pb2

DEAD_LETTERS: Final = Where("origin:*")
"""All tasks of a tube that another one gave up."""


class AsyncMoves(AsyncSelectedTasks):
    """The part of a tube's handle that moves tasks which nobody holds."""

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
        """Move ready, delayed and buried tasks to another tube; return how many.

        They are new tasks there, with other ids and attempts counted anew; unique keys go along.

        Args:
            tasks: Which.
            to: The other tube.
            delay: Hide them for so long; 0: ready at once. Absent, delayed ones stay so until their
                time, and the others are ready.
            position: Before or behind all ready tasks of the other tube.
            renew_times: With the times to live and to run of the other tube, not what is left of
                their own.
            changes: What changes together with the move; no delay.
            timeout: How long to try.

        Raises:
            TaskraftError: The only task was refused, or all were.
            ItemsRefused: Some of several were; the others were moved.
        """
        request = task_service_pb2.MoveTasksRequest(
            tube=self.name, selector=selector_of(tasks), move_to=to, renew_times=renew_times
        )
        return await self._move(request, delay, position, changes, timeout)

    async def redrive(
        self,
        tasks: TaskSelection = DEAD_LETTERS,
        *,
        delay: Duration | None = None,
        position: Position | None = None,
        changes: TaskChanges | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Move dead letters back, each to the tube that gave it up; return how many.

        They begin anew there, with the times of that tube and the unique keys that they had. Other
        tasks stay where they are. Arguments and errors are those of `move`.
        """
        request = task_service_pb2.MoveTasksRequest(
            tube=self.name, selector=selector_of(tasks), to_origin=True
        )
        return await self._move(request, delay, position, changes, timeout)

    async def _move(
        self,
        request: task_service_pb2.MoveTasksRequest,
        delay: Duration | None,
        position: Position | None,
        changes: TaskChanges | None,
        timeout: Duration | None,
    ) -> int:
        if delay is not None:
            request.delay_ms = milliseconds(delay, "delay")
        if position is not None:
            request.position = position_of(position)
        if changes is not None:
            request.update.CopyFrom(update_of(changes))
        answers = await self._change(lambda node: node.tasks.MoveTasks, request, timeout)
        return sum(answer.count for answer in answers)
