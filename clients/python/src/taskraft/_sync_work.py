"""Run a handler for each task of a subscription in threads, several at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeAlias

from taskraft._credit import WAITING_HANDLERS_MAX
from taskraft._handler_error import ordinary
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
"""Processes one task; the return value is stored as the task's result."""


def work_in_threads(
    tasks: AsyncSubscription, handler: Handler, portal: BlockingPortal, stop: Callable[[], None]
) -> None:
    """Run `handler` for each task of a subscription, each in a thread of its own.

    Raises:
        TypeError: the handler is a coroutine function.
        KeyboardInterrupt: Ctrl-C, after running handlers have finished; a second Ctrl-C at once.
    """
    if inspect.iscoroutinefunction(handler):
        raise TypeError(
            "an `async def` handler needs an AsyncClient; use a plain function with a Client"
        )
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
            await asyncio.wait({result})  # a thread cannot be cancelled; it can check `is_lost`
            raise

    try:
        working = portal.run(_started(tasks, in_thread))
        try:
            portal.run(_ended(working))
        except KeyboardInterrupt:
            log.warning(
                "stopping: waiting for running handlers; press Ctrl-C again to abandon them"
            )
            stop()
            portal.run(_ended(working))
            raise
    finally:
        threads.shutdown(wait=False)


def _handle(handler: Handler, taken: TakenTask) -> Payload:
    """Run the handler; raise its failure as an exception that a future can hold."""
    try:
        return handler(taken)
    except BaseException as error:  # noqa: BLE001 - Ctrl-C interrupts only the main thread
        raise ordinary(error)  # noqa: B904 - the cause is set


async def _started(tasks: AsyncSubscription, handler: AsyncHandler) -> asyncio.Task[None]:
    return asyncio.create_task(tasks.work(handler))


async def _ended(working: asyncio.Task[None]) -> None:
    """Wait for the worker without cancelling it if the wait is cancelled."""
    await asyncio.shield(working)
