"""Receive tasks as they become ready, without asking for each."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, Self

from taskraft import _settlement, errors
from taskraft._arguments import Texts, check_known, flag, text, texts
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._async_work import AsyncHandler, work
from taskraft._credit import Credit
from taskraft._durations import Duration, milliseconds
from taskraft._message_fields import set_field, set_fields
from taskraft._request_batcher import CLOSE_SECONDS_MAX
from taskraft._sessions import close_session
from taskraft._signals import DEFAULT_SIGNALS, LoopSignalHandler
from taskraft._subscription_buffer import SubscriptionBuffer
from taskraft._take import TouchOptions, TubeSources, take_sources, touch_seconds_max
from taskraft.v1 import task_service_pb2

if TYPE_CHECKING:
    from signal import Signals
    from types import TracebackType

    from taskraft._connection import Connection
    from taskraft._payload import Payload

log = logging.getLogger("taskraft")

CREDIT_DEFAULT: Final = 32
"""Tasks in hand by default: few enough not to hoard, enough to hide the way to the server."""


class SubscribeOptions(TouchOptions, total=False):
    """How tasks are handed out."""

    credit: int
    """So many tasks may be unsettled at once, 32 by default."""
    credit_bytes: int
    """So many bytes of payload may be unsettled at once; without limit by default."""
    session: str
    """A session to resume: its tasks come again. It is left open at the end."""
    session_ttr: Duration
    """How long a new session outlives a broken connection; the client's by default."""
    types: Texts
    """Only tasks of these types."""
    priority_bound: int
    """Only tasks at least as urgent as this."""
    ttr: Duration
    """Time to run of the leases instead of the tasks' own."""


class AsyncSubscription:
    """Tasks as they become ready, one by one or in batches.

        async with client.subscribe("emails") as tasks:
            async for task in tasks:
                async with task:
                    await send(task.json())

    The session and the leases live on through a lost connection and through a change of leader. At
    the end of the context unsettled tasks are handed back at once, and their attempts do not count.
    """

    def __init__(
        self, connection: Connection, sources: TubeSources, options: SubscribeOptions
    ) -> None:
        check_known(options, SubscribeOptions, "subscribe has no option")
        self._connection = connection
        self._is_own_session = not options.get("session")
        ttr_ms = connection.session_ttr_ms
        if "session_ttr" in options:
            ttr_ms = milliseconds(options["session_ttr"], "session_ttr")
        opening = task_service_pb2.SubscribeRequest.Open(
            sources=take_sources(sources),
            session_id=text("session", options.get("session", "")),
            session_ttr_ms=ttr_ms,
            session_name=connection.name,
            types=texts("types", options.get("types", ())),
        )
        set_fields(opening, ("priority_bound",), dict(options))
        if "ttr" in options:
            opening.ttr_ms = milliseconds(options["ttr"], "ttr")
        credit: Credit[AsyncTakenTask] = Credit(
            options.get("credit", CREDIT_DEFAULT), options.get("credit_bytes", 0)
        )
        self._buffer = SubscriptionBuffer(connection, opening, credit, touch_seconds_max(options))
        self._runner: asyncio.Task[None] | None = None
        self._signals = LoopSignalHandler(self.stop)
        self._is_closed = False

    # ------------------------------------------------------------------------- for its user

    @property
    def session_id(self) -> str:
        """The session that holds the leases; empty before the first connection."""
        return self._buffer.stream.session_id

    @property
    def credit(self) -> int:
        """So many tasks may be unsettled at once."""
        return self._buffer.credit.tasks_max

    async def narrow(
        self,
        *,
        types: Texts = (),
        priority_bound: int | None = None,
        none: bool = False,
    ) -> None:
        """Say anew which tasks may come, in place of what the subscription began with.

        A worker that has little room left asks for urgent tasks only, and widens that when it has
        more. What is on its way comes all the same.

        Args:
            types: Only tasks of these types; empty: all.
            priority_bound: Only tasks at least as urgent as this; None: all.
            none: No tasks at all until the next call.
        """
        if self._buffer.is_stopped:
            raise errors.ClientClosed("the subscription was stopped")
        wish = task_service_pb2.SubscribeRequest.Filter(
            types=texts("types", types), none=flag("none", none)
        )
        if priority_bound is not None:
            set_field(wish, "priority_bound", priority_bound)
        self._buffer.stream.narrow(wish)

    async def stop(self, unbegun: Sequence[AsyncTakenTask] = ()) -> None:
        """Take no more tasks, and let those in hand be finished: the iteration ends.

        What has come and nobody has begun is handed back at once, and its attempts do not count.
        The others keep their leases until the end of the context.

        Args:
            unbegun: Tasks of this subscription that were fetched and will not be worked on.
        """
        if not (self._is_closed or self._buffer.is_stopped):
            await self._buffer.stop(unbegun)

    def stop_on(self, *signals: Signals) -> None:
        """Stop at the first of these signals, SIGTERM if none is named; call it in the main thread.

        A second one does what it did before, and ends the process as a rule. So do all of them
        after the end of the subscription.
        """
        self._signals.install(signals or DEFAULT_SIGNALS)

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncTakenTask:
        handed_out = await self.next_batch(1)
        if not handed_out:
            raise StopAsyncIteration
        return handed_out[0]

    async def batches(self, tasks_max: int = 1_000) -> AsyncIterator[list[AsyncTakenTask]]:
        """Yield lists of the tasks that are there, never empty ones.

        Acknowledging lists costs far less than tasks one by one (bench/client_batches.py).
        """
        while batch := await self.next_batch(tasks_max):
            yield batch

    async def next_batch(self, tasks_max: int = 1_000) -> list[AsyncTakenTask]:
        """Wait for tasks and return them; an empty list means that there will be none."""
        self._start()
        return await self._buffer.next_batch(tasks_max)

    async def work(self, handler: AsyncHandler) -> None:
        """Run `handler` for each task, as many at once as `credit` says, until `stop`.

        Each runs in the block of its task. What it returns is stored as the result. What it raises
        is logged and goes to the tube's retry policy. A handler that waits for other tasks (`wait`,
        `put_and_wait`) makes room for another one meanwhile, so that it may wait for tasks of its
        own kind.

        Raises:
            TaskraftError: The subscription is over; handlers that run are cancelled.
        """
        await work(self, handler, self.credit)

    async def ack(
        self,
        tasks: Sequence[AsyncTakenTask],
        result: Payload = None,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Finish several tasks at once.

        Raises:
            ItemsRefused: Some leases were over; all other tasks are finished.
        """
        await self._buffer.settler.settle(tasks, _settlement.ack(result), timeout)
        for task in tasks:
            task.is_settled = True

    async def close(self) -> None:
        """Hand back what is not settled, and end the stream."""
        if self._is_closed:
            return
        self._is_closed = True
        self._signals.restore()
        await self._buffer.close()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._connection.unregister(self)
        if self.session_id:
            self._connection.keep_alive.remove(self.session_id)
            if self._is_own_session and self._buffer.error is None:
                await self._close_session()

    async def _close_session(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS_MAX
        try:
            await close_session(self._connection.caller, self.session_id, deadline)
        except errors.TaskraftError as error:
            log.warning("the session was not closed and ends by itself: %s", error)

    def _start(self) -> None:
        if self._is_closed:
            raise errors.ClientClosed("the subscription was closed")
        if self._runner is None:
            self._connection.register(self)
            self._runner = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._buffer.stream.run()
        except Exception as error:
            self._buffer.failed(errors.InternalError(f"the client has a defect: {error!r}"))
            raise
