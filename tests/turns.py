"""Wait in a test for a condition, without a sleep of fixed length."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

SECONDS_MAX = 60
"""Maximum duration of a wait in seconds; the test fails after a longer wait."""


async def turns_until(is_so: Callable[[], object]) -> None:
    """Let the event loop run until a condition holds."""
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110 - the awaited conditions have no common event
            await asyncio.sleep(0)


def blocked_until(is_so: Callable[[], object]) -> None:
    """Block this thread and its event loop until other threads make a condition true."""
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, "the condition did not become true in time"


def count_turns() -> SimpleNamespace:
    """Count the turns of the event loop in ``count`` until ``is_over`` is set."""
    turns = SimpleNamespace(count=0, is_over=False)

    def turn() -> None:
        turns.count += 1
        if not turns.is_over:
            asyncio.get_running_loop().call_soon(turn)

    asyncio.get_running_loop().call_soon(turn)
    return turns
