"""A task that is leased to this client, and what can be done with it."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Self, Unpack

from taskraft import _settlement, errors
from taskraft._durations import Duration
from taskraft._lease import Lease
from taskraft._task import Task

if TYPE_CHECKING:
    from types import TracebackType

    from taskraft._lease_settler import LeaseSettler
    from taskraft._payload import Payload
    from taskraft._settlement import Keep, Reason, ReleaseOptions, Settlement
    from taskraft._task_selection import TaskChanges
    from taskraft.v1 import task_pb2


class AsyncTakenTask(Task):
    """A task that this client holds; settle it, or use it as a context.

    ``async with task:`` acknowledges on success and releases with the failure when the block
    raises, so that the tube's retry policy decides what comes next; the exception goes on to the
    caller. A task that was settled inside the block is left alone. In the block a lease with a time
    to run is prolonged by itself; when it is lost all the same, the block is cancelled and raises
    `LeaseStale`.

    Every operation raises `LeaseStale` once the lease is over, and takes `timeout`, which defaults
    to the client's.
    """

    __slots__ = ("_process", "_settler", "is_settled", "lease")

    def __init__(
        self, message: task_pb2.Task, settler: LeaseSettler, lease: Lease | None = None
    ) -> None:
        super().__init__(message)
        self._settler = settler
        self._process: AbstractContextManager[None] | None = None
        self.lease: Final = lease or Lease(message)
        """What is known here of its lease."""
        self.is_settled = False
        """It was acknowledged, released, buried or rejected by this object."""

    @property
    def is_lost(self) -> bool:
        """The lease is known to be over."""
        return self.lease.is_lost

    async def ack(
        self,
        result: Payload = None,
        *,
        keep: Keep | None = None,
        retain: Duration | None = None,
        payload: Payload = None,
        timeout: Duration | None = None,
    ) -> None:
        """Finish the task.

        Args:
            result: Stored with the task where it is kept, and told to those who wait for it.
            keep: What becomes of the task instead of what the tube says.
            retain: How long a kept task stays.
            payload: Replaces the payload of a kept task.
            timeout: How long to try.
        """
        action = _settlement.ack(result, keep=keep, retain=retain, payload=payload)
        await self._end(action, timeout)

    async def release(
        self,
        delay: Duration | None = None,
        *,
        timeout: Duration | None = None,
        **options: Unpack[ReleaseOptions],
    ) -> None:
        """Give the task back.

        Args:
            delay: Hide it for so long; absent as the retry policy says.
            timeout: How long to try.
            **options: See `ReleaseOptions`.
        """
        await self._end(_settlement.release(delay, **options), timeout)

    async def bury(
        self,
        reason: Reason = "",
        *,
        changes: TaskChanges | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Take the task out of circulation until it is kicked; change it at the same time."""
        await self._end(_settlement.bury(reason, changes=changes), timeout)

    async def reject(self, reason: Reason = "", *, timeout: Duration | None = None) -> None:
        """Give the task up: to the tube's dead-letter tube if it has one, else like `bury`."""
        await self._end(_settlement.reject(reason), timeout)

    async def touch(
        self,
        increment: Duration | None = None,
        *,
        progress: float | None = None,
        note: str = "",
        timeout: Duration | None = None,
    ) -> None:
        """Prolong the lease by `increment`, or start its time anew; tell the progress, 0 to 1."""
        action = _settlement.touch(increment, progress=progress, note=note)
        await self._settler.settle([self], action, timeout)

    @property
    def is_cancel_requested(self) -> bool:
        """Somebody asked the holder to stop.

        Known from the take and from each touch, in a subscription also from each heartbeat (5 s).
        """
        return self.message.cancel_requested

    def process(self) -> AbstractContextManager[None]:
        """Return a context of the processing: it is traced, the lease kept, and nothing settled."""
        return self._settler.process(self)

    async def settle_after(self, error: BaseException | None) -> None:
        """Finish the task, or give it back because of an exception, unless it is settled.

        An interruption, such as KeyboardInterrupt, costs the task no attempt.
        """
        if self.is_settled:
            return
        if error is None:
            await self.ack()
            return
        try:
            if isinstance(error, Exception):
                await self.release(reason=error)
            else:
                await self.release(0, uncounted=True)
        except errors.TaskraftError as refused:
            error.add_note(f"taskraft: {self} was not released: {refused.reason}: {refused}")

    def note_settled(self) -> None:
        """Take note that something else has settled the task."""
        self.is_settled = True
        self._settler.stop_renewal([self])

    async def _end(self, action: Settlement, timeout: Duration | None) -> None:
        try:
            await self._settler.settle([self], action, timeout)
        except errors.LeaseStale:
            raise
        except BaseException:
            if self.lease.is_in_block:  # it may be tried again
                self._settler.start_renewal([self])
            raise
        self.is_settled = True

    async def __aenter__(self) -> Self:
        self._process = self.process()
        self._process.__enter__()
        self.lease.cancel_on_loss(asyncio.current_task())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.__exit__(kind, error, traceback)
        self._process = None
        self.lease.end_cancel_on_loss(error)
        await self.settle_after(error)
