"""Hold what the parts of one client share: the way to the cluster, the session, the messages."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from taskraft import _fork, errors, tracing
from taskraft._calls import Caller, new_request_id
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._joiner import CLOSE_SECONDS_MAX, Joiner, Outcome
from taskraft._leases import KeptLeases
from taskraft._nodes import Nodes
from taskraft._route import Route, addresses_from
from taskraft._sessions import KeepAlive, TakeSession
from taskraft._settlement import SettleItem, TouchedLease, outcomes_of, settlements_of
from taskraft._status import refused_items
from taskraft._taken import Leases
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import grpc

    from taskraft._calls import Method, Request, Response
    from taskraft._nodes import Node
    from taskraft._slots import Share
    from taskraft._taken import Submit

TIMEOUT_DEFAULT: Final = "30s"
SESSION_TTR_DEFAULT: Final = "15s"
TUBES_MAX: Final = 10_000
"""Tubes whose puts are joined at the same time; idle ones make room for others."""


class Closing(Protocol):
    """A part of the client that has to be closed with it."""

    async def close(self) -> None:
        """Close it."""
        ...


class _Listing(Protocol):
    """A request for one page of a list."""

    page_token: str


class _Page(Protocol):
    """One page of a list."""

    @property
    def next_page_token(self) -> str:
        """Asks for the next page; empty on the last."""
        ...


Listing = TypeVar("Listing", bound=_Listing)
Page = TypeVar("Page", bound=_Page)


class Connection:
    """One client's way to the cluster; used from one event loop."""

    def __init__(
        self,
        target: str | None,
        *,
        timeout: Duration = TIMEOUT_DEFAULT,
        name: str | None = None,
        session_ttr: Duration = SESSION_TTR_DEFAULT,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        addresses = addresses_from(target)
        self.name: Final = name or f"{socket.gethostname()}-{os.getpid()}"
        self.timeout_seconds: Final = seconds(timeout, "timeout")
        self.session_ttr_ms: Final = milliseconds(session_ttr, "session_ttr")
        self.nodes: Final = Nodes(Route(addresses), credentials)
        self.caller: Final = Caller(self.nodes)
        self.keep_alive: Final = KeepAlive(addresses, credentials)
        self.kept_leases: Final = KeptLeases(addresses, credentials, self._soon)
        self.take_session: Final = TakeSession(
            self.caller,
            self.keep_alive,
            name=self.name,
            ttr_ms=self.session_ttr_ms,
            soon=self._soon,
            lost=self.kept_leases.session_lost,
        )
        self.spans: Final = tracing.current_spans(self.name)
        self._settles: Joiner[SettleItem, TouchedLease | None] = Joiner(self._settle)
        self.leases: Final = self.leases_settled_by(self._settles.submit)
        self._puts: dict[str, Joiner[task_pb2.TaskSpec, int]] = {}
        self._parts: set[Closing] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def deadline(self, timeout: Duration | None, wait_seconds: float = 0.0) -> float:
        """Return when a call that starts now has to end, by `time.monotonic`."""
        allowed = self.timeout_seconds if timeout is None else seconds(timeout, "timeout")
        return time.monotonic() + allowed + wait_seconds

    def use(self) -> None:
        """Check that the client may be used here and now.

        Raises:
            ClientClosed: It was closed.
            ClientForked: It was connected before this process was forked.
            RuntimeError: It belongs to another event loop.
        """
        if self._is_closed:
            raise errors.ClientClosed("the client was closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            _fork.connected()
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("an AsyncClient belongs to the event loop that used it first")
        else:
            _fork.check()

    def leases_settled_by(
        self, submit: Submit, share: Callable[[int], Share] | None = None
    ) -> Leases:
        """Return what settles tasks that came from one place."""
        return Leases(submit, self.timeout_seconds, self.spans, self.kept_leases, share)

    def _soon(self, callback: Callable[[], None]) -> None:
        """Run a function on the event loop, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it was closed meanwhile, and nobody asks any more
                self._loop.call_soon_threadsafe(callback)

    async def call(
        self,
        method: Callable[[Node], Method[Request, Response]],
        request: Request,
        *,
        timeout: Duration | None = None,
        wait_seconds: float = 0.0,
    ) -> Response:
        """Carry one call to the leader; see `Caller.call`."""
        self.use()
        deadline = self.deadline(timeout, wait_seconds)
        return await self.caller.call(method, request, deadline=deadline, wait_seconds=wait_seconds)

    async def pages(
        self,
        method: Callable[[Node], Method[Listing, Page]],
        request: Listing,
        *,
        timeout: Duration | None = None,
    ) -> AsyncIterator[Page]:
        """Yield one page of a list after another; the time allowed is for each."""
        while True:
            page = await self.call(method, request, timeout=timeout)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    # ---------------------------------------------------------------------------------- puts

    def puts(self, tube: str) -> Joiner[task_pb2.TaskSpec, int]:
        """Return what joins the puts into one tube."""
        joiner = self._puts.get(tube)
        if joiner is None:
            if len(self._puts) >= TUBES_MAX:
                self._puts = {name: each for name, each in self._puts.items() if not each.is_idle}

            async def send(specs: list[task_pb2.TaskSpec], deadline: float) -> list[Outcome[int]]:
                return await self._put(tube, specs, deadline)

            joiner = self._puts[tube] = Joiner(send)
        return joiner

    async def _put(
        self, tube: str, specs: list[task_pb2.TaskSpec], deadline: float
    ) -> list[Outcome[int]]:
        request = task_service_pb2.PutTasksRequest(
            request_id=new_request_id(), tube=tube, tasks=specs
        )
        response = await self.caller.call(
            lambda node: node.tasks.PutTasks, request, deadline=deadline
        )
        return put_outcomes(response)

    # ------------------------------------------------------------------------------- settles

    async def _settle(
        self, items: list[SettleItem], deadline: float
    ) -> list[Outcome[TouchedLease | None]]:
        request = task_service_pb2.SettleTasksRequest(
            request_id=new_request_id(), settlements=settlements_of(items)
        )
        response = await self.caller.call(
            lambda node: node.tasks.SettleTasks, request, deadline=deadline
        )
        return outcomes_of(items, response.errors, response.touched)

    # --------------------------------------------------------------------------------- close

    def remember(self, part: Closing) -> None:
        """Note a part that has to be closed with the client."""
        self.use()
        self._parts.add(part)

    def forget(self, part: Closing) -> None:
        """Note that a part was closed."""
        self._parts.discard(part)

    async def close(self) -> None:
        """Close subscriptions, the session, and the channels, in this order."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is None:
            return
        try:
            await asyncio.gather(*(part.close() for part in list(self._parts)))
            await asyncio.gather(
                self._settles.close(CLOSE_SECONDS_MAX),
                *(joiner.close(CLOSE_SECONDS_MAX) for joiner in self._puts.values()),
            )
            with suppress(errors.TaskraftError):  # the session ends by itself
                await self.take_session.close(self.deadline(CLOSE_SECONDS_MAX))
        finally:
            self.keep_alive.close()
            self.kept_leases.close()
            await self.nodes.close()
            _fork.disconnected()


def put_outcomes(response: task_service_pb2.PutTasksResponse) -> list[Outcome[int]]:
    """Return one task id or error for each item of a put."""
    outcomes: list[Outcome[int]] = list(response.task_ids)
    for position, error in refused_items(response.errors).items():
        outcomes[position] = error
    return outcomes
