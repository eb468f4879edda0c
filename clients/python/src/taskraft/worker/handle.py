"""Wait for a task that was put, and read its result."""

# ruff: noqa: ASYNC109 - the timeout is sent to the server, which waits.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from taskraft import errors
from taskraft.worker.errors import (
    ResultNotKept,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskNotProcessed,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import taskraft
    from taskraft import AsyncClient, Cancelled, Duration
    from taskraft.worker.clients import AppClients
    from taskraft.worker.payloads import Payloads

R_co = TypeVar("R_co", covariant=True)

PROCESSED: Final = "PROCESSED"
_NOT_PROCESSED: Final[Mapping[str, type[TaskNotProcessed]]] = {
    "DELETED": TaskCancelled,
    "EXPIRED": TaskExpired,
}
"""Exceptions by outcome; every other outcome is a failure."""


@dataclass(frozen=True, slots=True)
class Result(Generic[R_co]):
    """The outcome of a task, with its result or its last failure."""

    outcome: str
    """PROCESSED, FAILED, BURIED_OUT, EXPIRED, DELETED, DEPENDENCY_FAILED, or TIMEOUT: not ended."""
    value: R_co | None
    """Result of a processed task."""
    failure: str
    """Type and text of the last failure; empty if there was none."""
    attempt: int
    """Number of takes of the task."""


class Progress(NamedTuple):
    """Progress of a running handler, as `Context.progress` has reported it."""

    share: float
    """Part of the work that is done, from 0 to 1."""
    note: str


class Handle(Generic[R_co]):
    """A task that was put.

    The methods with an "a" in front are for asyncio.
    """

    def __init__(self, clients: AppClients, payloads: Payloads, tube: str, task_id: int) -> None:
        self.tube: Final = tube
        """Name of the tube."""
        self.id: Final = task_id
        """Id of the task in the tube."""
        self._clients = clients
        self._payloads = payloads

    def __str__(self) -> str:
        return f"{self.tube}/{self.id}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the task and return its result.

        Args:
            timeout: maximum wait; default: no limit.

        Raises:
            TaskFailed: the task was buried, rejected or removed, or a dependency failed.
            TaskCancelled: the task was cancelled or deleted.
            TaskExpired: the time to live of the task ended first.
            ResultNotKept: the task ended before this call, and its result was not kept until now.
            TaskNotFound: the task never existed.
            TimeoutError: the task has not ended in time.
        """
        return self._clients.run(self._result(self._clients.blocking_inner(), timeout))

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Do the same as `result`, in asyncio."""
        return await self._result(self._clients.here(), timeout)

    def outcome(self, timeout: Duration | None = None) -> Result[R_co]:
        """Wait for the task and return its outcome, also if the task failed.

        Raises:
            ResultNotKept: as for `result`.
        """
        return self._clients.run(self._outcome(self._clients.blocking_inner(), timeout))

    async def aoutcome(self, timeout: Duration | None = None) -> Result[R_co]:
        """Do the same as `outcome`, in asyncio."""
        return await self._outcome(self._clients.here(), timeout)

    def status(self) -> taskraft.Task:
        """Return the task as it is now."""
        return self._clients.run(self._clients.blocking_inner().tube(self.tube).peek(self.id))

    async def astatus(self) -> taskraft.Task:
        """Do the same as `status`, in asyncio."""
        return await self._clients.here().tube(self.tube).peek(self.id)

    def cancel(self) -> Cancelled:
        """Remove the task if no worker has it, else ask its handler to end."""
        return self._clients.run(self._clients.blocking_inner().tube(self.tube).cancel(self.id))

    async def acancel(self) -> Cancelled:
        """Do the same as `cancel`, in asyncio."""
        return await self._clients.here().tube(self.tube).cancel(self.id)

    def progress(self) -> Iterator[Progress]:
        """Yield the progress that the handler reports, until the task has ended.

        Reports that follow each other faster than the caller reads them are left out.
        """
        clients = self._clients
        while (found := clients.run(self._reported(clients.blocking_inner()))) is not None:
            yield found

    async def aprogress(self) -> AsyncIterator[Progress]:
        """Do the same as `progress`, in asyncio."""
        while (found := await self._reported(self._clients.here())) is not None:
            yield found

    async def _reported(self, client: AsyncClient) -> Progress | None:
        """Wait for the next report; return None if the task has ended instead."""
        try:
            (task,) = await client.tube(self.tube).wait(self.id, progress=True)
        except errors.TaskNotFound:
            return None
        if task.outcome not in ("", "TIMEOUT"):
            return None
        report = task.message.progress
        return Progress(report.basis_points / 10_000, report.note)

    async def _result(self, client: AsyncClient, timeout: Duration | None) -> R_co:
        found = await self._outcome(client, timeout)
        if found.outcome == PROCESSED:
            return found.value  # type: ignore[return-value]  # the type of the handler's result
        if found.outcome == "TIMEOUT":
            raise TimeoutError(f"{self} has not ended within {timeout}")
        ended = _NOT_PROCESSED.get(found.outcome, TaskFailed)
        why = f": {found.failure}" if found.failure else ""
        raise ended(f"{self} ended as {found.outcome} after {found.attempt} attempts{why}")

    async def _outcome(self, client: AsyncClient, timeout: Duration | None) -> Result[Any]:
        (task,) = await client.tube(self.tube).wait(self.id, wait=timeout)
        if task.outcome == "NOT_KEPT":
            raise ResultNotKept(
                f"{self} is not there any more, so its result is unknown; set keep_result of the "
                "task to a longer time, or ask for the result earlier"
            )
        value = None
        if task.outcome == PROCESSED and task.result:
            value = self._payloads.decode_result(task.result, task.message.result_content_type)
        return Result(task.outcome, value, task.failure, task.attempt)
