"""Buffer the received tasks of one subscription, and track their leases."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from taskraft import _settlement, errors
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._clock import monotonic
from taskraft._credit import Credit
from taskraft._lease import Lease
from taskraft._request_batcher import CLOSE_SECONDS_MAX, RequestBatcher
from taskraft._task_stream import TaskStream
from taskraft.v1 import task_pb2, task_service_pb2

if TYPE_CHECKING:
    from taskraft._connection import Connection
    from taskraft._request_batcher import ItemOutcome
    from taskraft._settlement import SettledLease, SettleItem, Settlement

log = logging.getLogger("taskraft")

RECOVER_SECONDS_MAX: Final = 5.0
TASKS_PER_GET: Final = 1_000
_NO_TASKS: Final = task_service_pb2.SubscribeRequest.Filter(none=True)


class _CreditWaitHook:
    """Excludes one task from the credit limit while its handler waits for other tasks."""

    __slots__ = ("_credit", "_stream", "_token")

    def __init__(self, credit: Credit[AsyncTakenTask], stream: TaskStream, token: int) -> None:
        self._credit = credit
        self._stream = stream
        self._token = token

    def wait_started(self) -> None:
        self._credit.handler_waits(self._token)
        self._stream.wake()

    async def wait_ended(self) -> None:
        self._credit.handler_resumes(self._token)


class SubscriptionBuffer:
    """Received tasks of one subscription: waiting in the buffer, in progress, or lost."""

    def __init__(
        self,
        connection: Connection,
        opening: task_service_pb2.SubscribeRequest.Open,
        credit: Credit[AsyncTakenTask],
        touch_seconds_max: float,
    ) -> None:
        """Store the tubes and the options of the subscription.

        Args:
            connection: connection to the cluster.
            opening: first message of each stream.
            credit: computes the credit to grant.
            touch_seconds_max: maximum time for which leases are renewed, in seconds.
        """
        self._connection = connection
        self._ttr_ms = opening.session_ttr_ms
        self._touch_seconds_max = touch_seconds_max
        self.credit: Final = credit
        self.stream: Final = TaskStream(connection.nodes, opening, self)
        """Receives the tasks."""
        self._batcher: RequestBatcher[SettleItem, SettledLease] = RequestBatcher(self.stream.settle)
        self.settler: Final = connection.settler_for(
            self._settle, lambda token: _CreditWaitHook(credit, self.stream, token)
        )
        """Settles the tasks."""
        self._filter = task_service_pb2.SubscribeRequest.Filter(types=opening.types)
        if opening.HasField("priority_bound"):
            self._filter.priority_bound = opening.priority_bound
        self._is_paused = False
        self._ready: deque[AsyncTakenTask] = deque()
        self._returned: list[AsyncTakenTask] = []
        self._releases: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.error: errors.TaskraftError | None = None
        """Error with which the subscription has failed; None while the subscription works."""
        self.is_stopped = False
        """True after `stop`."""
        self._is_closed = False
        self._wall_offset_ms: int | None = None
        """Wall time of the cluster minus cluster time at the last heartbeat; None before."""

    async def next_batch(self, tasks_max: int, linger_seconds: float) -> list[AsyncTakenTask]:
        """Wait for tasks and return them; an empty list means that the subscription has stopped.

        After the first task, wait up to `linger_seconds` until `tasks_max` tasks have arrived.

        From this call on, the lease of a task that was returned earlier is renewed only while the
        ``with`` block of the task runs.
        """
        self._end_renewal()
        await self._arrived(1)
        await self.linger(tasks_max, linger_seconds)
        await self._arrived(1)  # leases may have ended in the meantime
        return self.fetch(tasks_max)

    async def first(self) -> AsyncTakenTask | None:
        """Wait for a task and return it without fetching it; None: the subscription has stopped."""
        await self._arrived(1)
        return self._ready[0] if self._ready else None

    async def linger(self, tasks: int, seconds: float) -> None:
        """Wait up to `seconds` until `tasks` tasks have arrived."""
        if seconds and len(self._ready) < tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrived(tasks)

    def fetch(self, tasks_max: int) -> list[AsyncTakenTask]:
        """Return the tasks that have arrived, at most `tasks_max`, without a wait."""
        self._end_renewal()
        batch = [self._ready.popleft() for _ in range(min(tasks_max, len(self._ready)))]
        self._returned += batch
        return batch

    def _end_renewal(self) -> None:
        """Renew the lease of a task that was returned earlier only in the task's block."""
        returned, self._returned = self._returned, []
        self.settler.stop_renewal(task for task in returned if not task.lease.is_in_block)

    async def _arrived(self, tasks: int) -> None:
        """Wait until tasks are ready, or the subscription has stopped."""
        while len(self._ready) < tasks and not (self.is_stopped or self._is_closed):
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()

    def narrow(self, new_filter: task_service_pb2.SubscribeRequest.Filter) -> None:
        """Replace the filter; during a pause, the filter has an effect at the end of the pause."""
        self._filter = new_filter
        if not self._is_paused:
            self.stream.narrow(new_filter)

    def pause(self, *, is_paused: bool) -> None:
        """Let the server send no tasks, although it has credit; or end this pause."""
        if is_paused is not self._is_paused and not self.is_stopped:
            self._is_paused = is_paused
            self.stream.narrow(_NO_TASKS if is_paused else self._filter)

    async def stop(self, unbegun: Sequence[AsyncTakenTask]) -> None:
        """Ask for no more tasks, and release the tasks that no handler has started."""
        self.stream.narrow(_NO_TASKS)
        self.is_stopped = True
        self._changed.set()
        self.hand_back(unbegun)
        if self._releases:
            await asyncio.wait(self._releases)  # a cancelled wait does not cancel the releases

    def hand_back(self, unbegun: Sequence[AsyncTakenTask] = ()) -> None:
        """Start to release `unbegun` and the tasks that `next_batch` has not returned."""
        self._ready.extendleft(reversed(unbegun))
        self._release_unstarted()

    async def close(self) -> None:
        """Return no more tasks, and send the waiting settlements."""
        self._is_closed = True
        self._changed.set()
        self._ready.clear()
        self.settler.stop_renewal(self.credit.held.values())
        await self._batcher.close(0.0 if self.error is not None else CLOSE_SECONDS_MAX)

    async def _settle(
        self, items: Sequence[SettleItem], size_bytes: int, deadline: float
    ) -> list[ItemOutcome[SettledLease]]:
        ending = [token for token, action in items if not action.HasField("touch")]
        self.credit.settling(ending)
        if not self._batcher.is_idle:  # the settlement waits for an answer; its credit need not
            self.stream.wake()
        try:
            return await self._batcher.submit(items, size_bytes, deadline)
        finally:
            self.credit.settled(ending)

    # ------------------------------------------------------------------------ StreamListener

    def grant(self, *, is_convenient: bool) -> tuple[int, int] | None:
        """Return tasks and bytes to grant now, or None."""
        return self.credit.grant(is_convenient=is_convenient)

    def received(self, tasks: Sequence[task_pb2.Task], *, is_granted: bool = True) -> None:
        """Add received tasks; `is_granted` is True if they used up credit."""
        if self._connection.spans is not None:
            self._connection.spans.received(tasks, time.time_ns(), self.stream.address)
        timed: list[AsyncTakenTask] = []
        for message in tasks:
            lease = Lease(message, touch_seconds_max=self._touch_seconds_max, is_fresh=is_granted)
            task = AsyncTakenTask(message, self.settler, lease)
            self.credit.hold(task, is_granted=is_granted)
            self._ready.append(task)
            if message.lease_until_ms:
                timed.append(task)
        if timed:
            self.settler.start_renewal(timed)
        self._changed.set()
        if self.is_stopped:  # the tasks were sent before the server knew of the stop
            self._release_unstarted()

    @property
    def holds_lease(self) -> bool:
        """Whether the subscription holds a lease."""
        return bool(self.credit.held)

    def cancelled(self, tokens: Sequence[int]) -> None:
        """Mark tasks whose holders were asked to stop."""
        for token in tokens:
            task = self.credit.held.get(token)
            if task is not None:
                task.lease.cancel_requested()

    async def opened(self, session_id: str, held: Sequence[task_pb2.Task]) -> None:
        """Compare the session's leases with the buffer, and fetch tasks that never arrived."""
        self._connection.keep_alive.add(session_id, max(self._ttr_ms, 1_000), lambda: None)
        self.credit.restart()
        self._lost(self.credit.missing_from(message.token for message in held))
        unknown = [message for message in held if not self.credit.is_known(message.token)]
        if unknown:
            await self._recover(unknown)

    def clock(self, now_ms: int, wall_offset_ms: int) -> None:
        """Remove tasks whose leases have expired at the wall time `now_ms`.

        A forward correction of the wall time moves the expiry of the leases that are held. A
        backward correction moves none, because a lease that arrives after it would then seem
        expired.
        """
        if self._wall_offset_ms is not None and wall_offset_ms > self._wall_offset_ms:
            self.credit.postpone(wall_offset_ms - self._wall_offset_ms)
        self._wall_offset_ms = wall_offset_ms
        self._lost(self.credit.expired(now_ms))

    def failed(self, error: errors.TaskraftError) -> None:
        """Record that the subscription has failed."""
        self.error = error
        self._changed.set()

    def _release_unstarted(self) -> None:
        """Start to release the tasks that no handler has started."""
        tokens = [task.token for task in self._ready if not task.is_settled]
        self._ready.clear()
        if tokens:
            releasing = asyncio.create_task(self._release_uncounted(tokens))
            self._releases.add(releasing)
            releasing.add_done_callback(self._releases.discard)

    async def _release_uncounted(self, tokens: Sequence[int]) -> None:
        action = _settlement.release(0, uncounted=True)
        try:
            await self.settler.settle_items(
                [(token, action) for token in tokens], CLOSE_SECONDS_MAX
            )
        except errors.ClientClosed:
            pass  # the session of the subscription has ended, and with it the leases
        except errors.TaskraftError as error:
            log.warning(
                "could not release tasks, their leases last until the session ends: %s", error
            )

    def _lost(self, tasks: Sequence[AsyncTakenTask]) -> None:
        self.settler.stop_renewal(tasks)
        for task in tasks:
            task.lease.lost()
        if tasks:
            log.warning("%d leases have ended; other consumers can take their tasks", len(tasks))
            self._ready = deque(task for task in self._ready if not task.is_lost)
            self.stream.wake()

    async def _recover(self, messages: Sequence[task_pb2.Task]) -> None:
        """Fetch tasks that the session holds and this client never received.

        Tasks that cannot be fetched are released.
        """
        deadline = monotonic() + RECOVER_SECONDS_MAX
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
                log.warning(
                    "could not read tasks that the session holds, releasing them: %s", error
                )
                action: Settlement = _settlement.release(0, uncounted=True)
                await self._connection.settler.settle_items(
                    [(message.token, action) for message in held.values()], RECOVER_SECONDS_MAX
                )
                continue
            for message in response.tasks:
                held[message.id].spec.CopyFrom(message.spec)
            self.received(list(held.values()), is_granted=False)
