"""Run a handler for each task of a subscription in threads, several at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeAlias

from taskraft._credit import WAITING_HANDLERS_MAX
from taskraft._sync_taken_task import TakenTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft._async_subscription import AsyncSubscription
    from taskraft._async_taken_task import AsyncTakenTask
    from taskraft._async_work import AsyncHandler
    from taskraft._blocking_portal import BlockingPortal
    from taskraft._payload import Payload

log = logging.getLogger("taskraft")

Handler: TypeAlias = "Callable[[TakenTask], Payload]"
"""What is done with a task; what it returns is stored as the task's result."""


def work_in_threads(
    tasks: AsyncSubscription, handler: Handler, portal: BlockingPortal, stop: Callable[[], None]
) -> None:
    """Work as the subscription does, each handler in a thread of its own.

    Raises:
        TypeError: The handler is for asyncio.
        KeyboardInterrupt: Ctrl-C, after what was begun is finished; at once when it comes again.
    """
    if inspect.iscoroutinefunction(handler):
        raise TypeError("this handler is `async def`: it works with an AsyncClient")
    threads = ThreadPoolExecutor(tasks.credit + WAITING_HANDLERS_MAX, "taskraft-work")

    async def in_thread(task: AsyncTakenTask) -> Payload:
        taken = TakenTask(task, portal)
        context = copy_context()
        result = asyncio.get_running_loop().run_in_executor(
            threads, context.run, _handle, handler, taken
        )
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            await asyncio.wait({result})  # nothing interrupts a thread: it may look at `is_lost`
            raise

    try:
        working = portal.run(_started(tasks, in_thread))
        try:
            portal.run(_ended(working))
        except KeyboardInterrupt:
            log.warning("no more tasks are taken; what is begun is finished, or left with Ctrl-C")
            stop()
            portal.run(_ended(working))
            raise
    finally:
        threads.shutdown(wait=False)


def _handle(handler: Handler, taken: TakenTask) -> Payload:
    """Run the handler; the end of the process is not for it to say."""
    try:
        return handler(taken)
    except SystemExit as error:
        raise RuntimeError(
            "a handler ended its process: that is for `stop` and the main thread"
        ) from error


async def _started(tasks: AsyncSubscription, handler: AsyncHandler) -> asyncio.Task[None]:
    return asyncio.create_task(tasks.work(handler))


async def _ended(working: asyncio.Task[None]) -> None:
    """Wait for the worker without taking it along when the wait is given up."""
    await asyncio.shield(working)
