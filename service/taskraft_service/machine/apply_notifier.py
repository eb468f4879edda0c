"""Let readers wait until more has been applied on this node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ApplyNotifier:
    """The moments at which entries were applied."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None
        self.ended = False
        """The node stops: nobody waits any more."""

    def end(self) -> None:
        """Let everybody go who waits."""
        self.ended = True
        self.applied(0)

    def applied(self, _now_ms: int) -> None:
        """Wake everybody who waits; called after each slice of applied entries."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    async def wait_for(self, is_so: Callable[[], bool], patience: float) -> bool:
        """Wait until something is so, for at most ``patience`` seconds; tell whether it is."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while not is_so():
            left = until - loop.time()
            if left <= 0 or self.ended:
                return False
            if self._next is None:
                self._next = loop.create_future()
            await asyncio.wait((self._next,), timeout=left)
        return True
