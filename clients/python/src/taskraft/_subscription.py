"""Receive tasks as they become ready, without asking for each."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, Self

from taskraft import _settlement, errors
from taskraft._credit import Credit
from taskraft._durations import Duration, milliseconds
from taskraft._joiner import CLOSE_SECONDS_MAX, Joiner
from taskraft._lease import Lease
from taskraft._options import Texts, check_known, texts
from taskraft._sessions import close_session
from taskraft._sources import Sources, sources_of
from taskraft._stream import TaskStream
from taskraft._taken import AsyncTakenTask
from taskraft._taking import TouchOptions, touch_seconds_max
from taskraft._work import AsyncHandler, work
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from types import TracebackType

    from taskraft._connection import Connection
    from taskraft._joiner import Outcome
    from taskraft._payload import Payload
    from taskraft._settlement import SettleItem, Settlement, TouchedLease

log = logging.getLogger("taskraft")

CREDIT_DEFAULT: Final = 32
"""Tasks in hand by default: few enough not to hoard, enough to hide the way to the server."""
RECOVER_SECONDS_MAX: Final = 5.0
TASKS_PER_GET: Final = 1_000


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


class _CreditShare:
    """The credit of one task, which its handler lends."""

    __slots__ = ("_credit", "_stream", "_token")

    def __init__(self, credit: Credit[AsyncTakenTask], stream: TaskStream, token: int) -> None:
        self._credit = credit
        self._stream = stream
        self._token = token

    def lend(self) -> None:
        self._credit.lend(self._token)
        self._stream.wake()

    async def take_back(self) -> None:
        self._credit.take_back(self._token)


class AsyncSubscription:
    """Tasks as they become ready, one by one or in batches.

        async with client.subscribe("emails") as tasks:
            async for task in tasks:
                async with task:
                    await send(task.json())

    The session and the leases live on through a lost connection and through a change of leader. At
    the end of the context unsettled tasks are handed back at once, and their attempts do not count.
    """

    def __init__(self, connection: Connection, sources: Sources, options: SubscribeOptions) -> None:
        check_known(options, SubscribeOptions, "subscribe has no option")
        self._connection = connection
        self._is_own_session = not options.get("session")
        self._ttr_ms = connection.session_ttr_ms
        if "session_ttr" in options:
            self._ttr_ms = milliseconds(options["session_ttr"])
        self._credit: Credit[AsyncTakenTask] = Credit(
            options.get("credit", CREDIT_DEFAULT), options.get("credit_bytes", 0)
        )
        opening = task_service_pb2.SubscribeRequest.Open(
            sources=sources_of(sources),
            session_id=options.get("session", ""),
            session_ttr_ms=self._ttr_ms,
            session_name=connection.name,
            types=texts(options.get("types", ())),
        )
        if "priority_bound" in options:
            opening.priority_bound = options["priority_bound"]
        if "ttr" in options:
            opening.ttr_ms = milliseconds(options["ttr"])
        self._stream = TaskStream(connection.nodes, opening, self)
        self._joiner: Joiner[SettleItem, TouchedLease | None] = Joiner(self._stream.settle)
        self._leases = connection.leases_settled_by(
            self._settle, lambda token: _CreditShare(self._credit, self._stream, token)
        )
        self._touch_seconds_max = touch_seconds_max(options)
        self._ready: deque[AsyncTakenTask] = deque()
        self._handed_out: list[AsyncTakenTask] = []
        self._changed = asyncio.Event()
        self._error: errors.TaskraftError | None = None
        self._runner: asyncio.Task[None] | None = None
        self._handing_back: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._is_closed = False

    # ------------------------------------------------------------------------- for its user

    @property
    def session_id(self) -> str:
        """The session that holds the leases; empty before the first connection."""
        return self._stream.session_id

    @property
    def credit(self) -> int:
        """So many tasks may be unsettled at once."""
        return self._credit.tasks_max

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
        if self._is_stopped:
            raise errors.ClientClosed("the subscription was stopped")
        wish = task_service_pb2.SubscribeRequest.Filter(
            types=texts(types), priority_bound=priority_bound, none=none
        )
        self._stream.narrow(wish)

    async def stop(self, unbegun: Sequence[AsyncTakenTask] = ()) -> None:
        """Take no more tasks, and let those in hand be finished: the iteration ends.

        What has come and nobody has begun is handed back at once, and its attempts do not count.
        The others keep their leases until the end of the context.

        Args:
            unbegun: Tasks of this subscription that were fetched and will not be worked on.
        """
        if self._is_closed or self._is_stopped:
            return
        self._stream.narrow(task_service_pb2.SubscribeRequest.Filter(none=True))
        self._is_stopped = True
        self._changed.set()
        self._ready.extend(unbegun)
        self._hand_back()
        await asyncio.gather(*self._handing_back)

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
        self._leave_handed_out()
        await self._some_ready()
        handed_out = [self._ready.popleft() for _ in range(min(tasks_max, len(self._ready)))]
        self._handed_out += handed_out
        return handed_out

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
        await self._leases.settle(tasks, _settlement.ack(result), timeout)
        for task in tasks:
            task.is_settled = True

    async def close(self) -> None:
        """Hand back what is not settled, and end the stream."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changed.set()
        self._ready.clear()
        self._leases.leave(self._credit.held.values())
        await self._joiner.close(0.0 if self._error is not None else CLOSE_SECONDS_MAX)
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._connection.forget(self)
        if self.session_id:
            self._connection.keep_alive.remove(self.session_id)
            if self._is_own_session and self._error is None:
                await self._close_session()

    async def _close_session(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS_MAX
        try:
            await close_session(self._connection.caller, self.session_id, deadline)
        except errors.TaskraftError as error:
            log.warning("the session was not closed and ends by itself: %s", error)

    async def _some_ready(self) -> None:
        """Return when a task is ready or the subscription is stopped or closed."""
        self._start()
        while not (self._ready or self._is_stopped or self._is_closed):
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def _leave_handed_out(self) -> None:
        """Prolong what was handed out before only while its block is being run."""
        handed_out, self._handed_out = self._handed_out, []
        self._leases.leave(task for task in handed_out if not task.lease.is_in_block)

    def _start(self) -> None:
        if self._is_closed:
            raise errors.ClientClosed("the subscription was closed")
        if self._runner is None:
            self._connection.remember(self)
            self._runner = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._stream.run()
        except Exception as error:
            self.failed(errors.InternalError(f"the client has a defect: {error!r}"))
            raise

    async def _settle(
        self, items: Sequence[SettleItem], size_bytes: int, deadline: float
    ) -> list[Outcome[TouchedLease | None]]:
        ending = [token for token, action in items if not action.HasField("touch")]
        self._credit.settling(ending)
        try:
            return await self._joiner.submit(items, size_bytes, deadline)
        finally:
            self._credit.settled(ending)

    # ----------------------------------------------------------------------- for the stream

    def grant(self, *, is_convenient: bool) -> tuple[int, int] | None:
        """Return tasks and bytes to grant now, or None."""
        return self._credit.grant(is_convenient=is_convenient)

    def received(self, tasks: Sequence[task_pb2.Task], *, is_granted: bool = True) -> None:
        """Take tasks that used up credit."""
        if self._connection.spans is not None:
            self._connection.spans.received(tasks, time.time_ns())
        timed: list[AsyncTakenTask] = []
        for message in tasks:
            lease = Lease(message, touch_seconds_max=self._touch_seconds_max, is_fresh=is_granted)
            task = AsyncTakenTask(message, self._leases, lease)
            self._credit.hold(task, is_granted=is_granted)
            self._ready.append(task)
            if message.lease_until_ms:
                timed.append(task)
        if timed:
            self._leases.keep(timed)
        self._changed.set()
        if self._is_stopped:  # they were on their way
            self._hand_back()

    def cancelled(self, tokens: Sequence[int]) -> None:
        """Note that somebody asked the holders of tasks to stop."""
        for token in tokens:
            task = self._credit.held.get(token)
            if task is not None:
                task.message.cancel_requested = True

    async def opened(self, session_id: str, held: Sequence[task_pb2.Task]) -> None:
        """Compare the session's leases with ours, and fetch what was lost on the way."""
        self._connection.keep_alive.add(session_id, max(self._ttr_ms, 1_000), lambda: None)
        self._credit.restart()
        self._lost(self._credit.missing_from(message.token for message in held))
        unknown = [message for message in held if not self._credit.is_known(message.token)]
        if unknown:
            await self._recover(unknown)

    def clock(self, now_ms: int) -> None:
        """Give credit for tasks whose leases ended by themselves."""
        self._lost(self._credit.expired(now_ms))

    def failed(self, error: errors.TaskraftError) -> None:
        """Note that the subscription is over."""
        self._error = error
        self._changed.set()

    def _hand_back(self) -> None:
        """Begin to give back what nobody has begun."""
        tokens = [task.token for task in self._ready if not task.is_settled]
        self._ready.clear()
        if tokens:
            handing_back = asyncio.create_task(self._release_uncounted(tokens))
            self._handing_back.add(handing_back)
            handing_back.add_done_callback(self._handing_back.discard)

    async def _release_uncounted(self, tokens: Sequence[int]) -> None:
        action = _settlement.release(0, uncounted=True)
        try:
            await self._leases.settle_items(
                [(token, action) for token in tokens], CLOSE_SECONDS_MAX
            )
        except errors.TaskraftError as error:
            log.warning("tasks were not handed back, they stay until the end: %s", error)

    def _lost(self, tasks: Sequence[AsyncTakenTask]) -> None:
        self._leases.leave(tasks)
        for task in tasks:
            task.lease.lost()
        if tasks:
            log.warning("%d leases are over; their tasks are handed out again", len(tasks))
            self._ready = deque(task for task in self._ready if not task.is_lost)
            self._stream.wake()

    async def _recover(self, messages: Sequence[task_pb2.Task]) -> None:
        """Fetch tasks that the session holds and we never received; else give them back."""
        deadline = time.monotonic() + RECOVER_SECONDS_MAX
        by_tube: dict[str, dict[int, task_pb2.Task]] = {}
        for message in messages[:TASKS_PER_GET]:
            by_tube.setdefault(message.tube, {})[message.id] = message
        for tube, held in by_tube.items():
            request = task_service_pb2.GetTasksRequest(
                tube=tube, selector=task_pb2.TaskSelector(ids=list(held))
            )
            try:
                response = await self._connection.caller.call(
                    lambda node: node.tasks.GetTasks, request, deadline=deadline
                )
            except errors.TaskraftError as error:
                log.warning("tasks held by the session could not be read again: %s", error)
                action: Settlement = _settlement.release(0, uncounted=True)
                await self._connection.leases.settle_items(
                    [(message.token, action) for message in held.values()], RECOVER_SECONDS_MAX
                )
                continue
            for message in response.tasks:
                held[message.id].spec.CopyFrom(message.spec)
            self.received(list(held.values()), is_granted=False)
