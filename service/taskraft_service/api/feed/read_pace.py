"""Leave half of the event loop to other work while callers read many events of the feed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 0.5
"""Maximum share of the time of the event loop for all reads of the feed together."""
REST_SECONDS_MIN: Final = 0.001
"""Shorter rests are saved up, because a timer costs time too."""


class ReadPace:
    """Spreads the work of all reads over time.

    Args:
        cpu_seconds: reads the CPU time of the thread of the event loop, so that other programs do
            not count.
        real_seconds: reads a clock that never goes back.
        rest: waits for a number of seconds.
    """

    def __init__(
        self,
        cpu_seconds: Callable[[], float] = time.thread_time,
        real_seconds: Callable[[], float] = time.monotonic,
        rest: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._real_seconds = real_seconds
        self._rest = rest
        self._begins_at = 0.0
        """Time at which further work may begin."""

    async def wait(self) -> None:
        """Wait until further work may begin."""
        while (left := self._begins_at - self._real_seconds()) >= REST_SECONDS_MIN:
            await self._rest(left)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the CPU time of the block as work; the block must not await."""
        began = self._cpu_seconds()
        yield
        used = self._cpu_seconds() - began
        self._begins_at = max(self._begins_at, self._real_seconds() - used) + used / SHARE
