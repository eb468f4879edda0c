"""Call the core's tick at a fixed interval of the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Ticker:
    """Calls ``tick`` every ``tick_ms`` milliseconds, from ``start`` until ``stop``.

    Missed ticks are skipped. After a pause of the process, the messages of peers must be read
    before an election timeout can count.
    """

    def __init__(self, tick_ms: int, tick: Callable[[], None]) -> None:
        self._tick_ms = tick_ms
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None

    def start(self, first_ticks: float) -> None:
        """Start; the first tick comes after ``first_ticks``, a fraction of a tick from 0 to 1.

        The fraction is random, so that members that start together do not campaign together.
        """
        assert self._timer is None
        assert 0 <= first_ticks <= 1
        self._arm(first_ticks)

    def stop(self) -> None:
        """Stop; a pending tick is cancelled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, ticks: float = 1) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ticks * self._tick_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._arm()
        self._tick()
