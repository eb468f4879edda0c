"""Limit how many coroutines do something at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """A number of permits, handed out in FIFO order; used on one event loop.

    A release takes constant time. With `asyncio.Semaphore`, each of many releases in one turn of
    the event loop looks at all waiters that were woken in this turn.

    Invariant: while a permit is free, nobody waits.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def has_free(self) -> bool:
        """Whether `acquire` returns at once."""
        return self._free > 0

    async def acquire(self) -> None:
        """Wait for a permit."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the permit came in the same turn of the loop
                self.release()
            raise

    def release(self) -> None:
        """Give a permit to the first waiter, or let it be free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
