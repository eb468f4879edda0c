"""Check conditions after each slice of applied entries, and wake the coroutines that wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

CHECKED_AT_ONCE: Final = 100
"""Maximum number of conditions that are checked in one turn of the event loop."""

_Wait: TypeAlias = tuple[Callable[[], bool], asyncio.Future[None]]


class ApplyNotifier:
    """Lets coroutines wait until applied entries make a condition true on this node."""

    def __init__(self) -> None:
        self.waiting: dict[_Wait, None] = {}
        """The conditions, and the futures of the coroutines that wait."""
        self._to_check: deque[_Wait] = deque()
        self._is_changed = False
        """Whether entries were applied after the last check of all conditions began."""
        self._is_scheduled = False
        self.ended = False
        """Whether the node is stopping, so that no coroutine may wait."""

    def end(self) -> None:
        """Wake all waiting coroutines, and refuse further waits."""
        self.ended = True
        self.applied(0)

    def applied(self, _now_ms: int) -> None:
        """Check all conditions, later; called after each slice of applied entries."""
        self._is_changed = True
        self._schedule()

    def _schedule(self) -> None:
        if self.waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._check_some)

    def _check_some(self) -> None:
        """Check conditions, and the other conditions in later turns of the event loop."""
        self._is_scheduled = False
        if not self._to_check:
            self._is_changed = False
            self._to_check.extend(self.waiting)
        for _ in range(min(CHECKED_AT_ONCE, len(self._to_check))):
            is_so, future = self._to_check.popleft()
            if not future.done() and (self.ended or is_so()):
                future.set_result(None)
        if self._to_check or self._is_changed:
            self._schedule()

    async def wait_for(self, is_so: Callable[[], bool], patience: float) -> bool:
        """Wait at most ``patience`` seconds for a condition; return whether it holds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while not is_so():
            left = until - loop.time()
            if left <= 0 or self.ended:
                return False
            wait = (is_so, loop.create_future())
            self.waiting[wait] = None
            try:
                await asyncio.wait((wait[1],), timeout=left)
            finally:
                del self.waiting[wait]
        return True
