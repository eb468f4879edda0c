"""Run a handler for each task of a subscription, several at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, TypeAlias

from taskraft import errors
from taskraft._handler_slots import HandlerSlot, HandlerSlots, wait_hook_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from taskraft._async_taken_task import AsyncTakenTask
    from taskraft._payload import Payload

log = logging.getLogger("taskraft")

AsyncHandler: TypeAlias = "Callable[[AsyncTakenTask], Awaitable[Payload]]"
"""Processes one task; the return value is stored as the task's result."""


async def work(
    tasks: AsyncIterator[AsyncTakenTask], handler: AsyncHandler, concurrency: int
) -> None:
    """Run `handler` for each task until the iteration ends, with up to `concurrency` at once.

    A handler that waits for other tasks does not count during the wait.

    Raises:
        TaskraftError: the subscription has failed; running handlers are cancelled.
    """
    slots = HandlerSlots(concurrency)
    handling: set[asyncio.Task[None]] = set()
    try:
        async for task in tasks:
            # Take the slot after the task has arrived: an idle worker must not hold a slot.
            slot = await slots.take()
            one = asyncio.create_task(_handle(task, handler, slot))
            handling.add(one)
            one.add_done_callback(handling.discard)
        await asyncio.gather(*handling)
    finally:
        for one in handling:
            one.cancel()
        await asyncio.gather(*handling, return_exceptions=True)


async def _handle(task: AsyncTakenTask, handler: AsyncHandler, slot: HandlerSlot) -> None:
    """Process one task; log failures and leave them to the tube's retry policy."""
    is_done = False
    try:
        with wait_hook_set(slot):
            async with task:
                result = await _started(task, handler)
                is_done = True
                if result is not None and not task.is_settled:
                    await task.ack(result)
    except errors.LeaseStale:
        log.warning("%s: the lease has ended; the task can be taken by another consumer", task)
    except Exception as error:
        if is_done and isinstance(error, errors.TaskraftError):
            log.warning(
                "%s was processed but not acknowledged, so it may be delivered again: %s",
                task,
                error,
            )
        else:
            log.exception("%s failed at attempt %d", task, task.attempt)
    finally:
        slot.close()


def _started(task: AsyncTakenTask, handler: AsyncHandler) -> Awaitable[Payload]:
    working = handler(task)
    if not inspect.isawaitable(working):
        raise TypeError("the handler of an AsyncSubscription must be an `async def` function")
    return working
