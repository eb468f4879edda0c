"""State that all parts of one client share: node pool, session, batchers and lease renewal."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from taskraft import _fork, _network, errors, tracing
from taskraft._abandoned_takes import AbandonedTakes
from taskraft._arguments import text
from taskraft._client_resources import ClientResources
from taskraft._clock import monotonic
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._error_translation import refused_items
from taskraft._leader_caller import new_request_id
from taskraft._lease_settler import LeaseSettler
from taskraft._node_selector import FailoverHook, NodeSelector, addresses_from
from taskraft._request_batcher import CLOSE_SECONDS_MAX, ItemOutcome, RequestBatcher
from taskraft._session_labels import session_labels
from taskraft._settlement import SettledLease, SettleItem, outcomes_of, settlements_of
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import grpc

    from taskraft._handler_slots import WaitHook
    from taskraft._leader_caller import AsyncUnaryMethod, Request, Response
    from taskraft._lease_settler import SettlementSender
    from taskraft._node_pool import NodeStubs

TIMEOUT_DEFAULT: Final = "30s"
SESSION_TTR_DEFAULT: Final = "15s"
TUBES_MAX: Final = 10_000
"""Maximum number of put batchers, one per tube; idle batchers are dropped above it."""


class Closeable(Protocol):
    """A part of the client that is closed with the client."""

    async def close(self) -> None:
        """Close this part of the client."""
        ...


class _Listing(Protocol):
    """A request for one page of a list."""

    page_token: str


class _Page(Protocol):
    """One page of a list."""

    @property
    def next_page_token(self) -> str:
        """Token that requests the next page; empty on the last page."""
        ...


Listing = TypeVar("Listing", bound=_Listing)
Page = TypeVar("Page", bound=_Page)


class Connection:
    """Shared state of one client, used from one event loop."""

    def __init__(  # noqa: PLR0913 - one argument for each option
        self,
        target: str | None,
        *,
        timeout: Duration = TIMEOUT_DEFAULT,
        name: str | None = None,
        session_ttr: Duration = SESSION_TTR_DEFAULT,
        client_id: str = "",
        labels: Mapping[str, str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        on_failover: FailoverHook | None = None,
    ) -> None:
        addresses = addresses_from(target)
        self.name: Final = name or f"{socket.gethostname()}-{os.getpid()}"
        self.client_id: Final = text("client_id", client_id)
        self.labels: Final = session_labels(labels)
        self.timeout_seconds: Final = seconds(timeout, "timeout")
        self.session_ttr_ms: Final = milliseconds(session_ttr, "session_ttr")
        self._resources = ClientResources(
            NodeSelector(addresses, on_failover),
            credentials,
            _network.current(),
            client_id=self.client_id,
            session_name=self.name,
            session_labels=self.labels,
            session_ttr_ms=self.session_ttr_ms,
        )
        weakref.finalize(self, self._resources.dropped).atexit = False
        self.nodes: Final = self._resources.nodes
        self.caller: Final = self._resources.caller
        self.keep_alive: Final = self._resources.keep_alive
        self.lease_renewer: Final = self._resources.lease_renewer
        self.abandoned_calls: Final = self._resources.abandoned_calls
        self.take_session: Final = self._resources.take_session
        self.call_soon: Final = self._resources.call_soon
        self.spans: Final = tracing.current_spans(self.name)
        self._settles: RequestBatcher[SettleItem, SettledLease] = RequestBatcher(self._settle)
        self.settler: Final = self.settler_for(self._settles.submit)
        self.abandoned_takes: Final = AbandonedTakes(self.caller, self.abandoned_calls)
        self._puts: dict[str, RequestBatcher[task_pb2.TaskSpec, int]] = {}
        self._parts: set[Closeable] = set()
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    def deadline(self, timeout: Duration | None, wait_seconds: float = 0.0) -> float:
        """Return the deadline of a call that starts now, by `time.monotonic`."""
        return monotonic() + self.limit_seconds(timeout) + wait_seconds

    def limit_seconds(self, timeout: Duration | None) -> float:
        """Return a time limit in seconds; None: the time limit of the client."""
        return self.timeout_seconds if timeout is None else seconds(timeout, "timeout")

    def check_usable(self) -> None:
        """Check that the client can be used on the current event loop.

        Raises:
            ClientClosed: the client was closed.
            ClientForked: the client was connected before this process was forked.
            RuntimeError: the client belongs to another event loop.
        """
        if self._is_closed:
            raise errors.ClientClosed("the client is closed")
        loop = asyncio.get_running_loop()
        if self._resources.loop is None:
            self._resources.network.client_connected()
            self._resources.loop = loop
        elif self._resources.loop is not loop:
            raise RuntimeError(
                "an AsyncClient can only be used on the event loop of its first call"
            )
        else:
            _fork.check()

    def settler_for(
        self, submit: SettlementSender, wait_hook: Callable[[int], WaitHook] | None = None
    ) -> LeaseSettler:
        """Return a settler for tasks of one source."""
        return LeaseSettler(
            submit,
            self.timeout_seconds,
            self.spans,
            self.lease_renewer,
            wait_hook,
            self.abandoned_calls,
        )

    @property
    def is_dead(self) -> bool:
        """True if the test kit has ended the network of the client."""
        return self._resources.network.is_dead

    async def call(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Request, Response]],
        request: Request,
        *,
        timeout: Duration | None = None,
        wait_seconds: float = 0.0,
    ) -> Response:
        """Send one call to the leader; see `LeaderCaller.call`."""
        self.check_usable()
        deadline = self.deadline(timeout, wait_seconds)
        return await self.caller.call(method, request, deadline=deadline, wait_seconds=wait_seconds)

    async def pages(
        self,
        method: Callable[[NodeStubs], AsyncUnaryMethod[Listing, Page]],
        request: Listing,
        *,
        timeout: Duration | None = None,
    ) -> AsyncIterator[Page]:
        """Yield the pages of a list; `timeout` applies to each page."""
        while True:
            page = await self.call(method, request, timeout=timeout)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    # ---------------------------------------------------------------------------------- puts

    def puts(self, tube: str) -> RequestBatcher[task_pb2.TaskSpec, int]:
        """Return the batcher for puts into one tube."""
        batcher = self._puts.get(tube)
        if batcher is None:
            if len(self._puts) >= TUBES_MAX:
                self._puts = {name: each for name, each in self._puts.items() if not each.is_idle}

            async def send(
                specs: list[task_pb2.TaskSpec], deadline: float
            ) -> list[ItemOutcome[int]]:
                return await self.put(tube, specs, deadline, new_request_id())

            batcher = self._puts[tube] = RequestBatcher(send)
        return batcher

    async def put(
        self, tube: str, specs: Sequence[task_pb2.TaskSpec], deadline: float, request_id: str
    ) -> list[ItemOutcome[int]]:
        """Put tasks in one message; return one outcome per task."""
        request = task_service_pb2.PutTasksRequest(request_id=request_id, tube=tube, tasks=specs)
        response = await self.caller.call(
            lambda node: node.tasks.PutTasks, request, deadline=deadline
        )
        return put_outcomes(response)

    # ------------------------------------------------------------------------------- settles

    async def _settle(
        self, items: list[SettleItem], deadline: float
    ) -> list[ItemOutcome[SettledLease]]:
        if self._resources.is_ended:
            raise errors.ClientClosed("the client is closed")
        request = task_service_pb2.SettleTasksRequest(
            request_id=new_request_id(), settlements=settlements_of(items)
        )
        response = await self.caller.call(
            lambda node: node.tasks.SettleTasks, request, deadline=deadline
        )
        return outcomes_of(items, response.errors, response.touched, response.given_up)

    # --------------------------------------------------------------------------------- close

    def register(self, part: Closeable) -> None:
        """Register a part that is closed with the client."""
        self.check_usable()
        self._parts.add(part)

    def unregister(self, part: Closeable) -> None:
        """Unregister a part that was closed."""
        self._parts.discard(part)

    async def close(self) -> None:
        """Close registered parts, batchers, the session, and the channels, in this order.

        If the caller is cancelled, the client is closed in the background.
        """
        self._is_closed = True
        if self._resources.loop is None:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await asyncio.gather(*(part.close() for part in list(self._parts)))
            await asyncio.gather(
                self._settles.close(CLOSE_SECONDS_MAX),
                *(batcher.close(CLOSE_SECONDS_MAX) for batcher in self._puts.values()),
            )
        finally:
            await self._resources.close()


def put_outcomes(response: task_service_pb2.PutTasksResponse) -> list[ItemOutcome[int]]:
    """Return one task id or error per item of a put."""
    outcomes: list[ItemOutcome[int]] = list(response.task_ids)
    for position, error in refused_items(response.errors).items():
        outcomes[position] = error
    return outcomes
