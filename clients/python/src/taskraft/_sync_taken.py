"""A task that is leased to this client, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from taskraft import errors
from taskraft._task import Task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from taskraft._choosing import TaskChanges
    from taskraft._durations import Duration
    from taskraft._payload import Payload
    from taskraft._portal import Portal
    from taskraft._settlement import Keep, Reason, ReleaseOptions
    from taskraft._taken import AsyncTakenTask


class TakenTask(Task):
    """A task that this client holds; settle it, or use it as a context.

    ``with task:`` acknowledges on success and releases with the failure when the block raises, so
    that the tube's retry policy decides what comes next; the exception goes on to the caller. A
    task that was settled inside the block is left alone.

    Every operation raises `LeaseStale` once the lease is over.
    """

    __slots__ = ("_portal", "_process", "taken")

    def __init__(self, taken: AsyncTakenTask, portal: Portal) -> None:
        super().__init__(taken.message)
        self.taken = taken
        """The same task for asyncio."""
        self._portal = portal
        self._process: AbstractContextManager[None] | None = None

    @property
    def is_settled(self) -> bool:
        """It was acknowledged, released, buried or rejected by this object."""
        return self.taken.is_settled

    def note_settled(self) -> None:
        """Take note that something else has settled the task."""
        self.taken.note_settled()

    @property
    def is_lost(self) -> bool:
        """The lease is known to be over: its session was lost."""
        return self.taken.is_lost

    @property
    def is_cancel_requested(self) -> bool:
        """Somebody asked the holder to stop; known from the take and from each touch."""
        return self.taken.is_cancel_requested

    def ack(
        self,
        result: Payload = None,
        *,
        keep: Keep | None = None,
        retain: Duration | None = None,
        payload: Payload = None,
        timeout: Duration | None = None,
    ) -> None:
        """Finish the task; see `AsyncTakenTask.ack`."""
        self._portal.run(
            self.taken.ack(result, keep=keep, retain=retain, payload=payload, timeout=timeout)
        )

    def release(
        self,
        delay: Duration | None = None,
        *,
        timeout: Duration | None = None,
        **options: Unpack[ReleaseOptions],
    ) -> None:
        """Give the task back; see `AsyncTakenTask.release`."""
        self._portal.run(self.taken.release(delay, timeout=timeout, **options))

    def bury(
        self,
        reason: Reason = "",
        *,
        changes: TaskChanges | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Take the task out of circulation until it is kicked; change it at the same time."""
        self._portal.run(self.taken.bury(reason, changes=changes, timeout=timeout))

    def reject(self, reason: Reason = "", *, timeout: Duration | None = None) -> None:
        """Give the task up: to the tube's dead-letter tube if it has one, else like `bury`."""
        self._portal.run(self.taken.reject(reason, timeout=timeout))

    def touch(
        self,
        increment: Duration | None = None,
        *,
        progress: float | None = None,
        note: str = "",
        timeout: Duration | None = None,
    ) -> None:
        """Prolong the lease by `increment`, or start its time anew; tell the progress, 0 to 1."""
        self._portal.run(self.taken.touch(increment, progress=progress, note=note, timeout=timeout))

    def process(self) -> AbstractContextManager[None]:
        """Return a context that traces the processing and settles nothing."""
        return self.taken.process()

    def __enter__(self) -> Self:
        self._process = self.taken.process()
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
        if self.is_settled:
            return
        if error is None:
            self.ack()
            return
        try:
            self._portal.run(self.taken.release_after(error))
        except errors.TaskraftError as refused:
            error.add_note(f"taskraft: {self} was not released: {refused.reason}: {refused}")
