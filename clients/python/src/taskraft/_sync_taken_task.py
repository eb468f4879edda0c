"""A task that this client has leased, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from taskraft._async_taken_task import AsyncTakenTask
from taskraft._blocking_facade import blocking
from taskraft._task import Task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from taskraft._blocking_portal import BlockingPortal
    from taskraft._lease import Lease


class TakenTask(Task):
    """A leased task; settle it, or use it as a context manager.

    ``with task:`` acknowledges the task on success. If the block raises, the task is released with
    the failure, the tube's retry policy decides what happens next, and the exception propagates. A
    task that was settled inside the block is not settled again. Inside the block, a lease with a
    TTR is renewed automatically; `is_lost` tells whether the lease was lost anyway.

    Every operation raises `LeaseStale` after the end of the lease.
    """

    __slots__ = ("_inner", "_portal", "_process")

    def __init__(self, taken: AsyncTakenTask, portal: BlockingPortal) -> None:
        super().__init__(taken.message)
        self._inner = taken
        self._portal = portal
        self._process: AbstractContextManager[None] | None = None

    @property
    def taken(self) -> AsyncTakenTask:
        """The same task for asyncio."""
        return self._inner

    @property
    def is_settled(self) -> bool:
        """True after this object has acknowledged, released, buried or rejected the task."""
        return self._inner.is_settled

    def note_settled(self) -> None:
        """Mark the task as settled by another call, such as a batch."""
        self._inner.note_settled()

    @property
    def given_up(self) -> str | None:
        """Outcome of a release or rejection without a next attempt.

        "BURIED_OUT": the task is BURIED. "FAILED": the task was removed, or moved to the
        dead-letter tube. "DELETED": the task was removed, because its cancellation was requested.
        None: there is a next attempt, or this object has not released or rejected the task.
        """
        return self._inner.given_up

    @property
    def lease(self) -> Lease:
        """The lease of the task, as this client knows it."""
        return self._inner.lease

    @property
    def is_lost(self) -> bool:
        """True if the client knows that the lease has ended; stop the work on the task."""
        return self._inner.is_lost

    @property
    def is_cancel_requested(self) -> bool:
        """True if someone has asked the holder to stop.

        The client learns of the request from the take, from each touch, and in a subscription also
        from each heartbeat, at most 5 s later.
        """
        return self._inner.is_cancel_requested

    ack = blocking(AsyncTakenTask.ack)
    release = blocking(AsyncTakenTask.release)
    bury = blocking(AsyncTakenTask.bury)
    reject = blocking(AsyncTakenTask.reject)
    settle = blocking(AsyncTakenTask.settle)
    touch = blocking(AsyncTakenTask.touch)

    def process(self) -> AbstractContextManager[None]:
        """Return a context that traces the processing and renews the lease, without settling."""
        return self._inner.process()

    def __enter__(self) -> Self:
        self._process = self._inner.process()
        self._process.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.__exit__(kind, error, traceback)
        self._process = None
        if not self.is_settled:
            self._portal.run(self._inner.settle_after(error))
