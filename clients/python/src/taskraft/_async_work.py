"""Run a handler for each task of a subscription, several at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, TypeAlias

from taskraft import _settlement, errors
from taskraft._guarded_call import cancellation_of_current_task, guarded
from taskraft._handler_slots import HandlerSlot, HandlerSlots, wait_hook_set
from taskraft._settlement import RESULT_BYTES_MAX, Settlement

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
    has_failed = False
    is_own_task_cancelled = cancellation_of_current_task()

    def is_cancelled() -> bool:
        return has_failed or is_own_task_cancelled()

    try:
        async for task in tasks:
            # Take the slot after the task has arrived: an idle worker must not hold a slot.
            slot = await slots.take()
            one = asyncio.create_task(_handle(task, handler, slot, is_cancelled))
            handling.add(one)
            one.add_done_callback(handling.discard)
        await asyncio.gather(*handling)
    finally:
        has_failed = True
        for one in handling:
            one.cancel()
        await asyncio.gather(*handling, return_exceptions=True)


async def _handle(
    task: AsyncTakenTask, handler: AsyncHandler, slot: HandlerSlot, is_cancelled: Callable[[], bool]
) -> None:
    """Process one task; log failures and leave them to the tube's retry policy."""
    is_done = False
    try:
        with wait_hook_set(slot):
            async with task:
                result = await guarded(
                    lambda: _awaited(task, handler), lambda: task.is_lost or is_cancelled()
                )
                is_done = True
                if result is not None and not task.is_settled:
                    await _acknowledge(task, result)
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


async def _acknowledge(task: AsyncTakenTask, result: Payload) -> None:
    """Acknowledge a task; reject the task if its result can never be stored."""
    try:
        settlement = _acknowledgement(result)
    except (TypeError, ValueError) as error:
        log.warning("%s is rejected, because its result cannot be stored: %s", task, error)
        settlement = _settlement.reject(error)
    await task.settle(settlement)


def _acknowledgement(result: Payload) -> Settlement:
    """Return the acknowledgement with a result.

    Raises:
        TypeError: JSON cannot represent the result.
        ValueError: the result cannot be encoded, or has more than 1 MiB.
    """
    settlement = _settlement.ack(result)
    size_bytes = len(settlement.ack.result)
    if size_bytes > RESULT_BYTES_MAX:
        raise ValueError(
            f"the result has {size_bytes} bytes; the server stores at most {RESULT_BYTES_MAX}"
        )
    return settlement


async def _awaited(task: AsyncTakenTask, handler: AsyncHandler) -> Payload:
    working = handler(task)
    if not inspect.isawaitable(working):
        raise TypeError("the handler of an AsyncSubscription must be an `async def` function")
    return await working
