"""Await code of an app whose exceptions must neither end the event loop nor look like requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from taskraft._handler_error import ordinary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Value = TypeVar("Value")


async def guarded(call: Callable[[], Awaitable[Value]], is_cancelled: Callable[[], bool]) -> Value:
    """Await code of an app, and raise its failure as an ordinary exception.

    Args:
        call: code of the app. Its own cancellations of the running asyncio task end with it.
        is_cancelled: tells whether the caller's side has cancelled the call. The flags behind it
            are set before the cancellation.

    Raises:
        asyncio.CancelledError: the call was cancelled, and `is_cancelled` returned True.
        Exception: the failure, or a HandlerError if it cannot be passed on.
    """
    running = asyncio.current_task()
    assert running is not None
    cancelling = running.cancelling()
    try:
        return await call()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        raise ordinary(error)  # noqa: B904 - the cause is set
    finally:
        if running.cancelling() > cancelling:
            await _take_back(running, cancelling)


async def _take_back(running: asyncio.Task[Any], cancelling: int) -> None:
    """Undo cancellations by a call that has ended, also one that its code has not seen."""
    while running.cancelling() > cancelling:
        running.uncancel()
    with suppress(asyncio.CancelledError):  # of a `cancel` after which the call did not wait
        await asyncio.sleep(0)


def cancellation_of_current_task() -> Callable[[], bool]:
    """Return a function that tells whether the running asyncio task is cancelled from now on."""
    running = asyncio.current_task()
    assert running is not None
    cancelling = running.cancelling()
    return lambda: running.cancelling() > cancelling
