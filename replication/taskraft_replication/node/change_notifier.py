"""Notify waiting coroutines of a state change: a condition variable for one event loop.

Each waiter checks its own condition again after it wakes.
"""

from __future__ import annotations

import asyncio


class ChangeNotifier:
    """Wakes all waiting coroutines at each change."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is resolved at the next change."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def notify_all(self) -> None:
        """Wake all coroutines that are waiting now."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
