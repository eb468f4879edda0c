"""Put into and take from one tube, with asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

from typing import Unpack, overload

from taskraft import errors
from taskraft._async_moves import AsyncMoves
from taskraft._async_puts import AsyncPuts
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._durations import Duration
from taskraft._leader_caller import new_request_id
from taskraft._take import TakeOptions, take_tasks
from taskraft.v1 import tube_service_pb2


class AsyncTube(AsyncPuts, AsyncMoves):
    """A handle of one tube; making one does not ask the server."""

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
            wait: How long to wait for one; absent without limit, 0 not at all.
            timeout: How long to try to reach the cluster, beyond the wait.
            **options: See `TakeOptions`.

        Returns:
            The task, or None if there was none in time; without `wait` always a task.
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
        """Take up to `tasks_max` tasks, at most 1 000; wait only for the first."""
        return await take_tasks(
            self._connection, self.name, tasks_max, wait=wait, timeout=timeout, options=options
        )

    # ---------------------------------------------------------------------------- the tube

    async def release_all(self, *, timeout: Duration | None = None) -> int:
        """Release all taken tasks, whoever holds them; return how many."""
        request = tube_service_pb2.ReleaseAllRequest(request_id=new_request_id(), name=self.name)
        response = await self._connection.call(
            lambda node: node.tubes.ReleaseAll, request, timeout=timeout
        )
        return response.tasks

    async def stats(self, *, timeout: Duration | None = None) -> tube_service_pb2.TubeStatistics:
        """Return how many tasks are in each state, and how many calls there were.

        Raises:
            TubeNotFound: There is no such tube.
        """
        request = tube_service_pb2.GetStatisticsRequest(tubes=[self.name])
        response = await self._connection.call(
            lambda node: node.tubes.GetStatistics, request, timeout=timeout
        )
        for statistics in response.tubes:
            return statistics
        raise errors.TubeNotFound(f'no tube has the name "{self.name}"')
