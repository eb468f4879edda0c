"""Turn the time of the event loop into the ticks that the core counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Ticker:
    """Calls ``tick`` every ``tick_ms``, from ``start`` until ``stop``.

    Ticks that the loop was late for are not made up: after a pause of the process its peers'
    messages must be read before an election timeout can be judged.
    """

    def __init__(self, tick_ms: int, tick: Callable[[], None]) -> None:
        self._tick_ms = tick_ms
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None

    def start(self, first_ticks: float) -> None:
        """Begin; ``first_ticks`` is what the first tick takes, a part of a usual one.

        Members that were started together must not tick, and so campaign, in the same moment.
        """
        assert self._timer is None
        assert 0 <= first_ticks <= 1
        self._arm(first_ticks)

    def stop(self) -> None:
        """End; a tick that is due does not happen."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, ticks: float = 1) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ticks * self._tick_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._arm()
        self._tick()
