"""The subscription for asyncio: the server pushes tasks as they become READY."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Self

from taskraft import _settlement, errors
from taskraft._arguments import Texts, check_known, flag, text, texts
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._async_work import AsyncHandler, work
from taskraft._credit import Credit
from taskraft._durations import Duration, milliseconds, seconds
from taskraft._message_fields import set_field, set_fields
from taskraft._signals import DEFAULT_SIGNALS, LoopSignalHandler
from taskraft._subscription_buffer import SubscriptionBuffer
from taskraft._subscription_run import SubscriptionRun
from taskraft._take import TouchOptions, TubeSources, take_sources, touch_seconds_max
from taskraft.v1 import task_service_pb2

if TYPE_CHECKING:
    from signal import Signals
    from types import TracebackType

    from taskraft._connection import Connection
    from taskraft._payload import Payload
    from taskraft._settlement import Settlement

CREDIT_DEFAULT: Final = 32
"""Default number of unsettled tasks: enough to hide the network latency, few enough to leave tasks
to other consumers."""


class SubscribeOptions(TouchOptions, total=False):
    """Options of a subscription."""

    credit: int
    """Maximum number of unsettled tasks; default 32."""
    credit_bytes: int
    """Maximum payload bytes of all unsettled tasks; default: no limit."""
    session: str
    """Id of a session to resume. The subscription receives the tasks of the session again, and
    leaves the session open at the end."""
    session_ttr: Duration
    """Time for which a new session survives without a connection; default: the client's
    session_ttr.
    """
    types: Texts
    """Only tasks of these types."""
    priority_bound: int
    """Only tasks at least as urgent as this priority."""
    yielding: bool
    """True: let the consumers of a tube that do not yield get its tasks first. For a general
    consumer, for example of the pattern ``*``."""
    ttr: Duration
    """TTR of the leases, instead of the tasks' own TTR."""
    silence_max: Duration
    """Maximum time without a message from the client, for example while the event loop is blocked;
    the server then ends the stream and its leases. Default: no maximum. The client sends a
    heartbeat at least every third of this time."""


class AsyncSubscription:
    """Tasks as they become READY, one by one or in batches.

        async with client.subscribe("emails") as tasks:
            async for task in tasks:
                async with task:
                    await send(task.json())

    Session and leases survive a lost connection and a change of leader. At the end of the context,
    unsettled tasks are released at once, and their attempts do not count.
    """

    def __init__(
        self, connection: Connection, sources: TubeSources, options: SubscribeOptions
    ) -> None:
        check_known(options, SubscribeOptions, "subscribe has no option")
        ttr_ms = connection.session_ttr_ms
        if "session_ttr" in options:
            ttr_ms = milliseconds(options["session_ttr"], "session_ttr")
        opening = task_service_pb2.SubscribeRequest.Open(
            sources=take_sources(sources, yielding=options.get("yielding", False)),
            session_id=text("session", options.get("session", "")),
            session_ttr_ms=ttr_ms,
            session_name=connection.name,
            session_labels=connection.labels,
            client_id=connection.client_id,
            types=texts("types", options.get("types", ())),
        )
        set_fields(opening, ("priority_bound",), dict(options))
        if "ttr" in options:
            opening.ttr_ms = milliseconds(options["ttr"], "ttr")
        if "silence_max" in options:
            opening.silence_ms_max = milliseconds(options["silence_max"], "silence_max")
        credit: Credit[AsyncTakenTask] = Credit(
            options.get("credit", CREDIT_DEFAULT), options.get("credit_bytes", 0)
        )
        self._buffer = SubscriptionBuffer(connection, opening, credit, touch_seconds_max(options))
        self._run = SubscriptionRun(
            connection, self._buffer, is_own_session=not options.get("session")
        )
        weakref.finalize(self, self._run.dropped).atexit = False
        self._signals = LoopSignalHandler(self.stop)

    # ---------------------------------------------------------------------------- public API

    @property
    def session_id(self) -> str:
        """Id of the session that holds the leases; empty before the first connection."""
        return self._buffer.stream.session_id

    @property
    def credit(self) -> int:
        """Maximum number of unsettled tasks."""
        return self._buffer.credit.tasks_max

    @property
    def open_credit(self) -> int:
        """Number of tasks that the server may still send."""
        return self._buffer.credit.open_tasks

    @property
    def is_connected(self) -> bool:
        """True while a stream to the cluster is open; False before the first one."""
        return self._buffer.stream.is_open

    @property
    def reconnects(self) -> int:
        """Number of reconnected streams, for example after a change of leader."""
        return self._buffer.stream.reconnects

    def withhold(self, tasks: int, *, is_due: bool = False) -> None:
        """Reduce the maximum number of unsettled tasks; a negative number restores it.

        Args:
            tasks: number of tasks.
            is_due: True: grant the restored credit at once. False: grant it together with the next
                settlement, or when half of the credit can be granted.
        """
        credit = self._buffer.credit
        credit.withheld += tasks
        credit.is_due = is_due
        if tasks < 0 and credit.is_worth_a_message:
            self._buffer.stream.wake()

    def pause(self, *, is_paused: bool) -> None:
        """Let the server send no tasks, although it has credit; False ends this pause.

        Tasks that are already on their way still arrive.
        """
        self._buffer.pause(is_paused=is_paused)

    async def narrow(
        self,
        *,
        types: Texts = (),
        priority_bound: int | None = None,
        none: bool = False,
    ) -> None:
        """Replace the filter of the subscription.

        A worker with little capacity can accept only urgent tasks, and widen the filter later.
        Tasks that are already on their way still arrive.

        Args:
            types: only tasks of these types; empty: all.
            priority_bound: only tasks at least as urgent as this priority; None: all.
            none: True: no tasks until the next call of this method.
        """
        if self._buffer.is_stopped:
            raise errors.ClientClosed("cannot change the filter: the subscription was stopped")
        stream_filter = task_service_pb2.SubscribeRequest.Filter(
            types=texts("types", types), none=flag("none", none)
        )
        if priority_bound is not None:
            set_field(stream_filter, "priority_bound", priority_bound)
        self._buffer.narrow(stream_filter)

    async def stop(self, unbegun: Sequence[AsyncTakenTask] = ()) -> None:
        """Receive no more tasks, so that the iteration ends.

        Received tasks that no handler has started are released at once, and their attempts do not
        count. The other tasks keep their leases until the end of the context.

        Args:
            unbegun: tasks of this subscription that the caller has fetched and will not process.
        """
        if not (self._run.is_closed or self._buffer.is_stopped):
            await self._buffer.stop(unbegun)

    def hand_back(self) -> None:
        """Start to release the tasks that were not fetched; their attempts do not count."""
        self._buffer.hand_back()

    def stop_on(self, *signals: Signals) -> None:
        """Stop at the first of these signals, default SIGTERM; call it in the main thread.

        After the first signal and after the end of the subscription, each signal has its previous
        effect again. A second signal therefore usually ends the process.
        """
        self._signals.install(signals or DEFAULT_SIGNALS)

    async def __aenter__(self) -> Self:
        self._run.start()
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
        returned = await self.next_batch(1)
        if not returned:
            raise StopAsyncIteration
        return returned[0]

    async def batches(
        self, tasks_max: int = 1_000, *, linger: Duration = 0
    ) -> AsyncIterator[list[AsyncTakenTask]]:
        """Yield non-empty lists of the tasks that have arrived; see `next_batch`.

        Acknowledging lists costs much less than acknowledging single tasks
        (bench/client_batches.py).
        """
        while batch := await self.next_batch(tasks_max, linger=linger):
            yield batch

    async def next_batch(
        self, tasks_max: int = 1_000, *, linger: Duration = 0
    ) -> list[AsyncTakenTask]:
        """Wait for tasks and return them; an empty list means that the subscription has stopped.

        Args:
            tasks_max: maximum length of the list; the credit of the subscription limits it too.
            linger: maximum wait for a full list after the first task; default: no wait.
        """
        self._run.start()
        return await self._buffer.next_batch(tasks_max, seconds(linger, "linger"))

    async def first(self) -> AsyncTakenTask | None:
        """Wait for a task, and return it without fetching it; None: the subscription has stopped.

        `fetch` returns the task later, unless its lease has ended or `hand_back` has released it.
        """
        self._run.start()
        return await self._buffer.first()

    async def linger(self, tasks: int, linger: Duration) -> None:
        """Wait until this number of tasks can be fetched, but not longer than `linger`."""
        await self._buffer.linger(tasks, seconds(linger, "linger"))

    def fetch(self, tasks_max: int) -> list[AsyncTakenTask]:
        """Return the tasks that have arrived, at most `tasks_max`, without a wait."""
        return self._buffer.fetch(tasks_max)

    async def work(self, handler: AsyncHandler) -> None:
        """Run `handler` for each task, with up to `credit` handlers at once, until `stop`.

        Each handler runs in the block of its task. The return value is stored as the task's result.
        An exception is logged, and the tube's retry policy decides what happens to the task. A
        handler that waits for other tasks (`wait`, `put_and_wait`) releases its concurrency slot
        during the wait, so it may wait for tasks of its own kind.

        Raises:
            TaskraftError: the subscription has failed; running handlers are cancelled.
        """
        await work(self, handler, self.credit)

    async def ack(
        self,
        tasks: Sequence[AsyncTakenTask],
        result: Payload = None,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Acknowledge several tasks in one call.

        Raises:
            ItemsRefused: some leases have ended; all other tasks are acknowledged.
        """
        await self._buffer.settler.settle(tasks, _settlement.ack(result), timeout)
        for task in tasks:
            task.is_settled = True

    def processing(self, tasks: Sequence[AsyncTakenTask]) -> AbstractContextManager[None]:
        """Return a context that renews the leases of several tasks, without settling."""
        return self._buffer.settler.process_many(tasks)

    async def settle(
        self, tasks: Sequence[AsyncTakenTask], actions: Sequence[Settlement]
    ) -> list[errors.TaskraftError | None]:
        """Settle several tasks, each with its own action, in one call.

        Returns:
            The error of each refused settlement, in order; None for the others.
        """
        items = [(task.token, action) for task, action in zip(tasks, actions, strict=True)]
        outcomes = await self._buffer.settler.settle_items(items, None)
        for task, outcome in zip(tasks, outcomes, strict=True):
            task.is_settled = not isinstance(outcome, errors.TaskraftError)
        return [one if isinstance(one, errors.TaskraftError) else None for one in outcomes]

    async def close(self) -> None:
        """Release unsettled tasks, and end the stream."""
        if not self._run.is_closed:
            self._signals.restore()
        await self._run.close()
