"""Wait in a test until something is so, without sleeping: others go on meanwhile."""

import asyncio
import time
from collections.abc import Callable

SECONDS_MAX = 10
"""How late it may be; a test that waits for longer fails."""


async def turns_until(is_so: Callable[[], object]) -> None:
    """Let the event loop turn until something is so."""
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110 - there is no one event for all that is awaited
            await asyncio.sleep(0)


def blocked_until(is_so: Callable[[], object]) -> None:
    """Keep this thread, and with it its event loop, until other threads have made something so."""
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
