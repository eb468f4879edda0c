"""The lease of one task, as its holder knows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from taskraft import errors
from taskraft._clock import monotonic
from taskraft._error_translation import name_task
from taskraft._heartbeats import HEARTBEATS_PER_TTR, NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft.v1 import task_pb2, task_service_pb2

PAUSE_SECONDS_MIN: Final = 0.05
"""Minimum pause between two touches, in seconds. A lease with a TTR near the network round-trip
time cannot be renewed."""


class Lease:
    """The lease of one task, from the receipt of the task on."""

    __slots__ = (
        "_cancelling",
        "_handler",
        "_is_interrupted",
        "is_in_block",
        "is_lost",
        "message",
        "on_cancel_request",
        "started",
        "touch_until",
    )

    def __init__(
        self, message: task_pb2.Task, *, touch_seconds_max: float = NEVER, is_fresh: bool = True
    ) -> None:
        """Store a received lease.

        Args:
            message: the task.
            touch_seconds_max: maximum time for which the lease is renewed, in seconds.
            is_fresh: True if the lease has just started.
        """
        now = monotonic()
        self.message: Final = message
        self.started: Final = now if is_fresh else 0.0
        """Approximate start of the lease by `time.monotonic`; 0 if unknown."""
        self.touch_until: Final = now + touch_seconds_max
        """Time at which renewal ends, by `time.monotonic`."""
        self.is_in_block = False
        """True while the block of the task runs."""
        self.is_lost = False
        """True if the lease is known to have ended."""
        self.on_cancel_request: Callable[[], None] | None = None
        """Called once when the client learns that someone has asked the holder to stop."""
        self._handler: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_interrupted = False

    def __str__(self) -> str:
        return f"the lease of {self.message.tube}/{self.message.id}"

    @property
    def pause_seconds(self) -> float:
        """Pause between touches: a third of the TTR; NEVER if the lease is not renewed."""
        until_ms = self.message.lease_until_ms
        if not until_ms or self.touch_until <= self.started:
            return NEVER
        run_ms = until_ms - self.message.since_ms
        run_ms = min(run_ms, self.message.ttr_ms or run_ms)
        return max(run_ms / 1_000 / HEARTBEATS_PER_TTR, PAUSE_SECONDS_MIN)

    def touched(self, lease: task_service_pb2.TouchedLease) -> None:
        """Store the new deadline after a touch."""
        self.message.lease_until_ms = lease.lease_until_ms
        if lease.cancel_requested:
            self.cancel_requested()

    def cancel_requested(self) -> None:
        """Note that someone has asked the holder to stop."""
        self.message.cancel_requested = True
        called, self.on_cancel_request = self.on_cancel_request, None
        if called is not None:
            called()

    def lost(self) -> None:
        """Mark the lease as ended, and cancel the handler, whose work is no longer useful."""
        self.is_lost = True
        if self._handler is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._handler.cancel(f"{self} has ended")

    def cancel_on_loss(self, handler: asyncio.Task[object] | None) -> None:
        """Cancel `handler` if the lease is lost before `end_cancel_on_loss`."""
        self._handler = handler
        self._cancelling = 0 if handler is None else handler.cancelling()
        self._is_interrupted = False

    def end_cancel_on_loss(self, error: BaseException | None) -> None:
        """Stop cancelling on loss; raise `LeaseStale` if `error` is this lease's own cancellation.

        A cancellation by other code propagates, as with `asyncio.timeout`.
        """
        handler, self._handler = self._handler, None
        if handler is None or not self._is_interrupted:
            return
        is_ours_alone = handler.uncancel() <= self._cancelling
        if is_ours_alone and isinstance(error, asyncio.CancelledError):
            stale = errors.LeaseStale("the lease has ended")
            name_task(stale, self.message)
            raise stale from error
