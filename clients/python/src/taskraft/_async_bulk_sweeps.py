"""Methods of `AsyncClient` for bulk sweeps: changes of many tasks, made by the server."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from taskraft._arguments import choice, text
from taskraft._leader_caller import new_request_id
from taskraft.v1 import bulk_sweep_pb2 as pb

if TYPE_CHECKING:
    from taskraft._connection import Connection
    from taskraft._durations import Duration

BulkAction: TypeAlias = Literal["kick", "restart", "bury", "delete", "move"]
_Actions = pb.StartBulkSweepRequest.Action
_ACTIONS: Final = {name.lower(): number for name, number in _Actions.items() if number}


class AsyncBulkSweeps:
    """The methods of `AsyncClient` for bulk sweeps."""

    _connection: Connection

    async def start_bulk_sweep(  # noqa: PLR0913 - one argument for each field
        self,
        tube: str,
        action: BulkAction,
        where: str = "",
        *,
        ids: Sequence[int] = (),
        to: str = "",
        reason: str = "",
        rate: int = 0,
        timeout: Duration | None = None,
    ) -> pb.BulkSweep:
        """Start a change of many tasks on the server; return the sweep without waiting for its end.

        The sweep continues after a change of leader and a restart of all nodes.

        Args:
            tube: name of the tube, which must not be temporary.
            action: what to do with each task.
            where: filter; empty without `ids`: all tasks. Tasks that are put later do not count.
            ids: these tasks instead, at most 10 000.
            to: target tube of "move".
            reason: reason of "bury".
            rate: maximum number of tasks per second; 0: 1 000.
            timeout: time limit of the start, retries included.

        Raises:
            TubeNotFound: a tube does not exist.
            InvalidField: the filter does not parse, or another value is wrong.
            LimitReached: too many sweeps run or wait.
        """
        request = pb.StartBulkSweepRequest(
            request_id=new_request_id(),
            tube=text("tube", tube),
            filter=text("where", where),
            ids=ids,
            action=_Actions.ValueType(choice("action", action, _ACTIONS)),
            move_to=text("to", to),
            bury_reason=text("reason", reason),
            rate_per_second=rate,
        )
        response = await self._connection.call(
            lambda node: node.tasks.StartBulkSweep, request, timeout=timeout
        )
        return response.sweep

    async def bulk_sweep(self, number: int, *, timeout: Duration | None = None) -> pb.BulkSweep:
        """Return a bulk sweep with its progress.

        Raises:
            BulkSweepNotFound: there is no such sweep.
        """
        request = pb.GetBulkSweepRequest(number=number)
        response = await self._connection.call(
            lambda node: node.tasks.GetBulkSweep, request, timeout=timeout
        )
        return response.sweep

    async def bulk_sweeps(self, *, timeout: Duration | None = None) -> list[pb.BulkSweep]:
        """Return the bulk sweeps of tubes that the caller may read, newest first."""
        request = pb.ListBulkSweepsRequest()
        pages = self._connection.pages(
            lambda node: node.tasks.ListBulkSweeps, request, timeout=timeout
        )
        return [sweep async for page in pages for sweep in page.sweeps]

    async def stop_bulk_sweep(
        self, number: int, *, timeout: Duration | None = None
    ) -> pb.BulkSweep:
        """Stop a bulk sweep; changed tasks stay changed.

        Raises:
            BulkSweepNotFound: there is no such sweep.
        """
        request = pb.StopBulkSweepRequest(request_id=new_request_id(), number=number)
        response = await self._connection.call(
            lambda node: node.tasks.StopBulkSweep, request, timeout=timeout
        )
        return response.sweep
