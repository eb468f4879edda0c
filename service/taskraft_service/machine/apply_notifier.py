"""Wake readers after each slice of applied entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ApplyNotifier:
    """Lets coroutines wait until more entries are applied on this node."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None
        self.is_awaited = False
        """Whether a coroutine waits for the next slice."""
        self.ended = False
        """Whether the node is stopping, so that no coroutine may wait."""

    def end(self) -> None:
        """Wake all waiting coroutines, and refuse further waits."""
        self.ended = True
        self.applied(0)

    def applied(self, _now_ms: int) -> None:
        """Wake all waiting coroutines; called after each slice of applied entries."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
            self.is_awaited = False

    async def wait_for(self, is_so: Callable[[], bool], patience: float) -> bool:
        """Wait at most ``patience`` seconds for a condition; return whether it holds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while not is_so():
            left = until - loop.time()
            if left <= 0 or self.ended:
                return False
            if self._next is None:
                self._next = loop.create_future()
                self.is_awaited = True
            await asyncio.wait((self._next,), timeout=left)
        return True
