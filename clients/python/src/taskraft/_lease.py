"""Know what the holder of a lease knows: how long it lasts, whose work depends on it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft._error_translation import name_task
from taskraft._heartbeats import HEARTBEATS_PER_TTR, NEVER

if TYPE_CHECKING:
    from taskraft.v1 import task_pb2, task_service_pb2

PAUSE_SECONDS_MIN: Final = 0.05
"""Leases are touched no oftener; a time to run as short as the way to the server is not kept."""


class Lease:
    """The lease of one task, from its arrival on."""

    __slots__ = (
        "_cancelling",
        "_handler",
        "_is_interrupted",
        "is_in_block",
        "is_lost",
        "message",
        "started",
        "touch_until",
    )

    def __init__(
        self, message: task_pb2.Task, *, touch_seconds_max: float = NEVER, is_fresh: bool = True
    ) -> None:
        """Take a lease as it came.

        Args:
            message: The task.
            touch_seconds_max: So long the lease is prolonged at most.
            is_fresh: It has only just started.
        """
        now = time.monotonic()
        self.message: Final = message
        self.started: Final = now if is_fresh else 0.0
        """About when it began, by `time.monotonic`; 0 when that is not known."""
        self.touch_until: Final = now + touch_seconds_max
        """It is prolonged until then."""
        self.is_in_block = False
        """The block of the task is being run."""
        self.is_lost = False
        """It is known to be over."""
        self._handler: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_interrupted = False

    def __str__(self) -> str:
        return f"the lease of {self.message.tube}/{self.message.id}"

    @property
    def pause_seconds(self) -> float:
        """A third of its time to run; NEVER when it is not to be prolonged."""
        until_ms = self.message.lease_until_ms
        if not until_ms or self.touch_until <= self.started:
            return NEVER
        run_ms = until_ms - self.message.since_ms
        run_ms = min(run_ms, self.message.ttr_ms or run_ms)
        return max(run_ms / 1_000 / HEARTBEATS_PER_TTR, PAUSE_SECONDS_MIN)

    def touched(self, lease: task_service_pb2.TouchedLease) -> None:
        """Take note of how long it lasts now."""
        self.message.lease_until_ms = lease.lease_until_ms
        self.message.cancel_requested = lease.cancel_requested

    def lost(self) -> None:
        """Take note that it is over: what is being done in the block is of no use any more."""
        self.is_lost = True
        if self._handler is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._handler.cancel(f"{self} is over")

    def cancel_on_loss(self, handler: asyncio.Task[object] | None) -> None:
        """Cancel the handler of a block, from now to its end, when the lease is lost."""
        self._handler = handler
        self._cancelling = 0 if handler is None else handler.cancelling()
        self._is_interrupted = False

    def end_cancel_on_loss(self, error: BaseException | None) -> None:
        """Interrupt no more, and raise `LeaseStale` where `error` is our own interruption.

        A cancellation by somebody else goes on, as with `asyncio.timeout`.
        """
        handler, self._handler = self._handler, None
        if handler is None or not self._is_interrupted:
            return
        is_ours_alone = handler.uncancel() <= self._cancelling
        if is_ours_alone and isinstance(error, asyncio.CancelledError):
            stale = errors.LeaseStale("the lease is over")
            name_task(stale, self.message)
            raise stale from error
