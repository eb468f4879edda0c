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
"""What is done with a task; what it returns is stored as the task's result."""


async def work(
    tasks: AsyncIterator[AsyncTakenTask], handler: AsyncHandler, concurrency: int
) -> None:
    """Run `handler` for each task, so many at once, until there will be none any more.

    A handler that waits for other tasks does not count meanwhile.

    Raises:
        TaskraftError: The subscription is over; handlers that run are cancelled.
    """
    slots = HandlerSlots(concurrency)
    handling: set[asyncio.Task[None]] = set()
    try:
        async for task in tasks:
            slot = await slots.take()  # only now: who has a slot and waits for tasks would keep it
            one = asyncio.create_task(_handle(task, handler, slot))
            handling.add(one)
            one.add_done_callback(handling.discard)
        await asyncio.gather(*handling)
    finally:
        for one in handling:
            one.cancel()
        await asyncio.gather(*handling, return_exceptions=True)


async def _handle(task: AsyncTakenTask, handler: AsyncHandler, slot: HandlerSlot) -> None:
    """Work on one task; what goes wrong is for the tube's retry policy and for the log."""
    is_done = False
    try:
        with wait_hook_set(slot):
            async with task:
                result = await _started(task, handler)
                is_done = True
                if result is not None and not task.is_settled:
                    await task.ack(result)
    except errors.LeaseStale:
        log.warning("%s took too long or was taken away, somebody else has it", task)
    except Exception as error:
        if is_done and isinstance(error, errors.TaskraftError):
            log.warning("%s was done but not acknowledged, it may come again: %s", task, error)
        else:
            log.exception("%s failed at attempt %d", task, task.attempt)
    finally:
        slot.close()


def _started(task: AsyncTakenTask, handler: AsyncHandler) -> Awaitable[Payload]:
    working = handler(task)
    if not inspect.isawaitable(working):
        raise TypeError("the handler of an AsyncSubscription is an `async def`")
    return working
