"""A task that is leased to this client, for threads."""

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
    """A task that this client holds; settle it, or use it as a context.

    ``with task:`` acknowledges on success and releases with the failure when the block raises, so
    that the tube's retry policy decides what comes next; the exception goes on to the caller. A
    task that was settled inside the block is left alone. In the block a lease with a time to run is
    prolonged by itself; `is_lost` tells when it is over all the same.

    Every operation raises `LeaseStale` once the lease is over.
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
        """It was acknowledged, released, buried or rejected by this object."""
        return self._inner.is_settled

    def note_settled(self) -> None:
        """Take note that something else has settled the task."""
        self._inner.note_settled()

    @property
    def lease(self) -> Lease:
        """What is known here of its lease."""
        return self._inner.lease

    @property
    def is_lost(self) -> bool:
        """The lease is known to be over: what is being done is of no use."""
        return self._inner.is_lost

    @property
    def is_cancel_requested(self) -> bool:
        """Somebody asked the holder to stop.

        Known from the take and from each touch, in a subscription also from each heartbeat (5 s).
        """
        return self._inner.is_cancel_requested

    ack = blocking(AsyncTakenTask.ack)
    release = blocking(AsyncTakenTask.release)
    bury = blocking(AsyncTakenTask.bury)
    reject = blocking(AsyncTakenTask.reject)
    touch = blocking(AsyncTakenTask.touch)

    def process(self) -> AbstractContextManager[None]:
        """Return a context of the processing: it is traced, the lease kept, and nothing settled."""
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
