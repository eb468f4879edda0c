"""Run background tasks of the event loop, and report their unexpected exceptions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def _report(task: asyncio.Task[None]) -> None:
    """Pass an unexpected exception to the event loop's exception handler.

    asyncio itself only logs the exception, and only when the task is garbage-collected. An
    exception of a callback goes to the exception handler at once, and the handler of a node stops
    the node.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def run_beside(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Start ``work`` as a task; the caller must keep a reference until the task ends."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    return task


class Background:
    """A set of background tasks; each is referenced until it ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start another background task."""
        task = run_beside(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel all background tasks."""
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Wait until all tasks have ended, successfully or not."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
