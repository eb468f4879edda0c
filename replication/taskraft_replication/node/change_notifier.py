"""Wait on the event loop until something has happened, then look again."""

from __future__ import annotations

import asyncio


class ChangeNotifier:
    """Wakes all who wait at each turn of events; what has happened they find out themselves."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def next(self) -> asyncio.Future[None]:
        """Return what is resolved at the next turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def take(self) -> None:
        """Wake everybody who waits now."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
