"""Run work beside the other work of the event loop, and let no defect of it pass unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def _report(task: asyncio.Task[None]) -> None:
    """Raise what nobody expected where the event loop hears of it.

    asyncio itself tells only when the task is forgotten, and then as a warning; what a callback
    raises goes at once to the loop's exception handler, and that of a node stops it.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def run_beside(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Begin ``work``, whose caller keeps the task: the loop forgets one that nobody holds."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    return task


class Background:
    """Any number of tasks, each held while it runs."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin one more."""
        task = run_beside(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Ask all of them to end."""
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Wait until all have ended, however they do."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
