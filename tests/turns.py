"""Wait in a test for a condition, without a sleep of fixed length."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

from tests.gate.real_time_guard import GUARD

SECONDS_MAX = 60
"""Maximum duration of a wait in seconds; the test fails after a longer wait."""
TURNS_MIN = 100
"""Number of turns of the event loop without a pause. Most conditions hold within fewer turns."""
PAUSE_SECONDS = 0.002
"""Pause between two looks at a condition, so that a wait leaves the core to the other processes."""


async def turns_until(is_so: Callable[[], object]) -> None:
    """Let the event loop run until a condition holds.

    A test of stage 1 has no pauses, because its loop has no timer of the real clock.
    """
    async with asyncio.timeout(SECONDS_MAX):
        turns = 0
        while not is_so():
            may_pause = turns >= TURNS_MIN and not GUARD.is_watching
            await asyncio.sleep(PAUSE_SECONDS if may_pause else 0)
            turns += 1


def blocked_until(is_so: Callable[[], object]) -> None:
    """Block this thread and its event loop until other threads make a condition true."""
    end = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(PAUSE_SECONDS)


def count_turns() -> SimpleNamespace:
    """Count the turns of the event loop in ``count`` until ``is_over`` is set."""
    turns = SimpleNamespace(count=0, is_over=False)

    def turn() -> None:
        turns.count += 1
        if not turns.is_over:
            asyncio.get_running_loop().call_soon(turn)

    asyncio.get_running_loop().call_soon(turn)
    return turns
