"""A tube for asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from typing import Unpack, overload

from taskraft import errors
from taskraft._async_moves import AsyncMoves
from taskraft._async_puts import AsyncPuts
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._durations import Duration
from taskraft._leader_caller import new_request_id
from taskraft._take import TakeOptions, take_tasks
from taskraft._tube_statistics import TubeStatistics
from taskraft.v1 import tube_service_pb2


class AsyncTube(AsyncPuts, AsyncMoves):
    """A handle of one tube; creating a handle does not call the server."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # ---------------------------------------------------------------------------------- take

    @overload
    async def take(
        self, *, timeout: Duration | None = None, **options: Unpack[TakeOptions]
    ) -> AsyncTakenTask: ...

    @overload
    async def take(
        self,
        *,
        wait: Duration | None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> AsyncTakenTask | None: ...

    async def take(
        self,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> AsyncTakenTask | None:
        """Take the next task.

        Args:
            wait: maximum wait for a task; default: no limit; 0: do not wait.
            timeout: time limit of the call beyond the wait, retries included.
            **options: see `TakeOptions`.

        Returns:
            The task, or None if no task was READY in time. Without `wait` always a task.
        """
        tasks = await self.take_many(1, wait=wait, timeout=timeout, **options)
        return tasks[0] if tasks else None

    async def take_many(
        self,
        tasks_max: int,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TakeOptions],
    ) -> list[AsyncTakenTask]:
        """Take up to `tasks_max` tasks, at most 1 000; wait only until the first task is READY."""
        return await take_tasks(
            self._connection, self.name, tasks_max, wait=wait, timeout=timeout, options=options
        )

    # ---------------------------------------------------------------------------- the tube

    async def release_all(self, *, timeout: Duration | None = None) -> int:
        """Release all TAKEN tasks of all holders; return the number of released tasks."""
        request = tube_service_pb2.ReleaseAllRequest(request_id=new_request_id(), name=self.name)
        response = await self._connection.call(
            lambda node: node.tubes.ReleaseAll, request, timeout=timeout
        )
        return response.tasks

    async def stats(self, *, timeout: Duration | None = None) -> TubeStatistics:
        """Return the number of tasks per state, and the number of calls.

        Raises:
            TubeNotFound: the tube does not exist.
        """
        request = tube_service_pb2.GetStatisticsRequest(tubes=[self.name])
        response = await self._connection.call(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        )
        for statistics in response.tubes:
            return TubeStatistics.of(statistics)
        raise errors.TubeNotFound.named(self.name)
