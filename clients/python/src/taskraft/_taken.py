"""A task that is leased to this client, and what can be done with it."""

# ruff: noqa: ASYNC109 - the timeout also bounds the retries and is told to the server.

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol, Self, Unpack

from taskraft import _settlement, errors
from taskraft._durations import Duration, seconds
from taskraft._joiner import MESSAGE_ITEMS_MAX, raise_refused
from taskraft._task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from taskraft._choosing import TaskChanges
    from taskraft._joiner import Outcome
    from taskraft._leases import KeptLeases
    from taskraft._payload import Payload
    from taskraft._settlement import (
        Keep,
        Reason,
        ReleaseOptions,
        SettleItem,
        Settlement,
        TouchedLease,
    )
    from taskraft._spans import Spans
    from taskraft.v1 import task_pb2

SETTLEMENT_BYTES: Final = 16
"""What a lease token without a result takes in a message, about."""


class Submit(Protocol):
    """Settles leases: on their own, or on the stream that they came by."""

    async def __call__(
        self, items: Sequence[SettleItem], size_bytes: int, deadline: float
    ) -> list[Outcome[TouchedLease | None]]:
        """Return one outcome for each item, in order."""
        ...


class Leases:
    """Settle tasks that came from one place: joined into messages, and traced."""

    def __init__(
        self, submit: Submit, timeout_seconds: float, spans: Spans | None, kept: KeptLeases
    ) -> None:
        self._submit = submit
        self._timeout_seconds = timeout_seconds
        self._spans = spans
        self._kept = kept

    def keep(self, tasks: Iterable[AsyncTakenTask]) -> None:
        """Prolong the leases of tasks from now on; those without a session end by themselves."""
        self._kept.add(task for task in tasks if task.message.session_id)

    def leave(self, tasks: Iterable[Task]) -> None:
        """Prolong leases no longer."""
        self._kept.discard(task.token for task in tasks)

    def process(self, task: Task) -> AbstractContextManager[None]:
        """Return the span of a task's processing, or nothing when tracing is off."""
        return nullcontext() if self._spans is None else self._spans.process(task)

    async def settle(
        self, tasks: Sequence[AsyncTakenTask], action: Settlement, timeout: Duration | None
    ) -> None:
        """Do the same with all tasks.

        Raises:
            ItemsRefused: Some of several were refused.
            TaskraftError: A single one was refused, or the call failed as a whole.
        """
        if self._spans is None:
            await self._settle(tasks, action, timeout)
            return
        with self._spans.settle(str(action.WhichOneof("action")), tasks):
            await self._settle(tasks, action, timeout)

    async def _settle(
        self, tasks: Sequence[AsyncTakenTask], action: Settlement, timeout: Duration | None
    ) -> None:
        items = [(task.message.token, action) for task in tasks]
        outcomes = await self.settle_items(items, timeout)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome is not None and not isinstance(outcome, errors.TaskraftError):
                task.touched(outcome)
        raise_refused(outcomes)

    async def settle_items(
        self, items: Sequence[SettleItem], timeout: Duration | None
    ) -> list[Outcome[TouchedLease | None]]:
        """Send the items in as few messages as the limits allow."""
        self._kept.discard(token for token, action in items if not action.HasField("touch"))
        allowed = self._timeout_seconds if timeout is None else seconds(timeout)
        deadline = time.monotonic() + allowed
        outcomes: list[Outcome[TouchedLease | None]] = []
        for start in range(0, len(items), MESSAGE_ITEMS_MAX):
            part = items[start : start + MESSAGE_ITEMS_MAX]
            shared = part[0][1].ByteSize()
            outcomes += await self._submit(part, shared + SETTLEMENT_BYTES * len(part), deadline)
        return outcomes


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

    __slots__ = (
        "_cancelling",
        "_handler",
        "_is_interrupted",
        "_leases",
        "_process",
        "is_begun",
        "is_lost",
        "is_settled",
        "leased_at",
        "touch_until",
    )

    def __init__(
        self,
        message: task_pb2.Task,
        leases: Leases,
        *,
        touch_seconds_max: float = float("inf"),
        is_fresh: bool = True,
    ) -> None:
        """Take a task as it came.

        Args:
            message: The task.
            leases: Where it is settled.
            touch_seconds_max: So long its lease is prolonged at most.
            is_fresh: The lease has only just begun.
        """
        super().__init__(message)
        self._leases = leases
        self._process: AbstractContextManager[None] | None = None
        self._handler: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_interrupted = False
        now = time.monotonic()
        self.leased_at: Final = now if is_fresh else 0.0
        """About when the lease began, by `time.monotonic`; 0 when that is not known."""
        self.touch_until: Final = now + touch_seconds_max
        """The lease is prolonged until then."""
        self.is_begun = False
        """Its block is being run."""
        self.is_settled = False
        """It was acknowledged, released, buried or rejected by this object."""
        self.is_lost = False
        """The lease is known to be over."""

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
        await self._leases.settle([self], action, timeout)

    @property
    def is_cancel_requested(self) -> bool:
        """Somebody asked the holder to stop.

        Known from the take and from each touch, in a subscription also from each heartbeat (5 s).
        """
        return self.message.cancel_requested

    def process(self) -> AbstractContextManager[None]:
        """Return a context that traces the processing and settles nothing."""
        return self._leases.process(self)

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
        self._leases.leave([self])

    def touched(self, lease: TouchedLease) -> None:
        """Take note of how long the lease lasts now."""
        self.message.lease_until_ms = lease.lease_until_ms
        self.message.cancel_requested = lease.cancel_requested

    def lost(self) -> None:
        """Take note that the lease is over: what is being done in the block is of no use."""
        self.is_lost = True
        if self._handler is not None and not self.is_settled and not self._is_interrupted:
            self._is_interrupted = True
            self._handler.cancel(f"the lease of {self} is over")

    def begin(self) -> None:
        """Take note that the block begins, in any thread: the lease is kept until its end."""
        self.is_begun = True
        self._leases.keep([self])

    def finish(self) -> None:
        """Take note that the block has ended."""
        self.is_begun = False
        self._leases.leave([self])

    async def _end(self, action: Settlement, timeout: Duration | None) -> None:
        try:
            await self._leases.settle([self], action, timeout)
        except errors.LeaseStale:
            raise
        except BaseException:
            if self.is_begun:  # it may be tried again
                self._leases.keep([self])
            raise
        self.is_settled = True

    async def __aenter__(self) -> Self:
        self._process = self._leases.process(self)
        self._process.__enter__()
        self._handler = asyncio.current_task()
        self._cancelling = 0 if self._handler is None else self._handler.cancelling()
        self.begin()
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
        handler, self._handler = self._handler, None
        try:
            if self._is_interrupted and handler is not None:
                is_ours_alone = handler.uncancel() <= self._cancelling
                if is_ours_alone and isinstance(error, asyncio.CancelledError):
                    raise errors.LeaseStale(f"the lease of {self} is over") from error
            await self.settle_after(error)
        finally:
            self.finish()
