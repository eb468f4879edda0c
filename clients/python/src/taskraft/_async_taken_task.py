"""A task that this client has leased, for asyncio."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is sent to the server.

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Final, Self, Unpack

from taskraft import _settlement, errors
from taskraft._durations import Duration
from taskraft._lease import Lease
from taskraft._task import OUTCOMES, Task

if TYPE_CHECKING:
    from types import TracebackType

    from taskraft._lease_settler import LeaseSettler
    from taskraft._payload import Payload
    from taskraft._settlement import GivenUpLease, Keep, Reason, ReleaseOptions, Settlement
    from taskraft._task_selection import TaskChanges
    from taskraft.v1 import task_pb2


class AsyncTakenTask(Task):
    """A leased task; settle it, or use it as a context manager.

    ``async with task:`` acknowledges the task on success. If the block raises, the task is released
    with the failure, the tube's retry policy decides what happens next, and the exception
    propagates. A task that was settled inside the block is not settled again. Inside the block, a
    lease with a TTR is renewed automatically. If the lease is lost anyway, the block is cancelled
    and raises `LeaseStale`.

    Every operation raises `LeaseStale` after the end of the lease. Every operation has a `timeout`,
    which defaults to the client's timeout.
    """

    __slots__ = ("_process", "_settler", "given_up", "is_settled", "lease")

    def __init__(
        self, message: task_pb2.Task, settler: LeaseSettler, lease: Lease | None = None
    ) -> None:
        super().__init__(message)
        self._settler = settler
        self._process: AbstractContextManager[None] | None = None
        self.lease: Final = lease or Lease(message)
        """The lease of the task, as this client knows it."""
        self.is_settled = False
        """True after this object has acknowledged, released, buried or rejected the task."""
        self.given_up: str | None = None
        """Outcome of a release or rejection without a next attempt: "BURIED_OUT" (the task is
        BURIED), "FAILED" (removed, or moved to the dead-letter tube) or "DELETED" (its cancellation
        was requested). None: there is a next attempt, or this object has not released or rejected
        the task."""

    @property
    def is_lost(self) -> bool:
        """True if the client knows that the lease has ended."""
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
        """Acknowledge the task as processed.

        Args:
            result: stored with the task if the task is kept, and sent to callers that wait for the
                task.
            keep: treatment of the acknowledged task, instead of the tube's setting.
            retain: time for which a kept task is retained.
            payload: replaces the payload of the task, if the task is kept.
            timeout: time limit of the call, retries included.
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
        """Release the task, so that it can be taken again.

        Args:
            delay: delay before the task is READY again; default: the retry policy decides.
            timeout: time limit of the call, retries included.
            **options: see `ReleaseOptions`.
        """
        await self._end(_settlement.release(delay, **options), timeout)

    async def bury(
        self,
        reason: Reason = "",
        *,
        changes: TaskChanges | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Bury the task until it is kicked; optionally change it at the same time."""
        await self._end(_settlement.bury(reason, changes=changes), timeout)

    async def reject(self, reason: Reason = "", *, timeout: Duration | None = None) -> None:
        """Reject the task: move it to the tube's dead-letter tube if it has one, else bury it."""
        await self._end(_settlement.reject(reason), timeout)

    async def settle(self, action: Settlement, *, timeout: Duration | None = None) -> None:
        """End the lease with any action except a touch, given as a `Settlement` without tokens."""
        await self._end(action, timeout)

    async def touch(
        self,
        increment: Duration | None = None,
        *,
        progress: float | None = None,
        note: str = "",
        timeout: Duration | None = None,
    ) -> None:
        """Extend the lease by `increment`, or restart its TTR; report progress from 0 to 1."""
        action = _settlement.touch(increment, progress=progress, note=note)
        await self._settler.settle([self], action, timeout)

    @property
    def is_cancel_requested(self) -> bool:
        """True if someone has asked the holder to stop.

        The client learns of the request from the take, from each touch, and in a subscription also
        from each heartbeat, at most 5 s later.
        """
        return self.message.cancel_requested

    def process(self) -> AbstractContextManager[None]:
        """Return a context that traces the processing and renews the lease, without settling."""
        return self._settler.process(self)

    async def settle_after(self, error: BaseException | None) -> None:
        """Acknowledge the task, or release it because of an exception, unless it is settled.

        An exception that is not an `Exception`, such as KeyboardInterrupt, does not count as an
        attempt. A cancelled settlement continues in the background.
        """
        try:
            await self._settle_after(error)
        except asyncio.CancelledError:
            self._settler.abandoned_calls.go_on(self._settle_later(error))
            raise

    async def _settle_later(self, error: BaseException | None) -> None:
        with suppress(errors.LeaseStale):  # the settlement that was cancelled has taken effect
            await self._settle_after(error)

    async def _settle_after(self, error: BaseException | None) -> None:
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
        """Mark the task as settled by another call, such as a batch."""
        self.is_settled = True
        self._settler.stop_renewal([self])

    def note_given_up(self, lease: GivenUpLease) -> None:
        """Store the outcome of the task after a release or a rejection."""
        self.given_up = OUTCOMES[lease.outcome]

    async def _end(self, action: Settlement, timeout: Duration | None) -> None:
        try:
            await self._settler.settle([self], action, timeout)
        except errors.LeaseStale:
            raise
        except BaseException:
            if self.lease.is_in_block:  # the block may settle the task again
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
