"""Check conditions after each slice of applied entries, and wake the coroutines that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from taskraft_service.machine.sliced_checks import SlicedChecks

CHECKED_AT_ONCE: Final = 100
"""Maximum number of conditions that are checked in one turn of the event loop."""

_Wait: TypeAlias = tuple[Callable[[], bool], asyncio.Future[None]]


class ApplyNotifier:
    """Lets coroutines wait until applied entries make a condition true on this node."""

    def __init__(self) -> None:
        self.waiting: dict[_Wait, None] = {}
        """The conditions, and the futures of the coroutines that wait."""
        self._checks = SlicedChecks(self.waiting, self._wake_if_true, CHECKED_AT_ONCE)
        self.ended = False
        """Whether the node is stopping, so that no coroutine may wait."""

    def end(self) -> None:
        """Wake all waiting coroutines, and refuse further waits."""
        self.ended = True
        self.applied(0)

    def applied(self, _now_ms: int) -> None:
        """Check all conditions, later; called after each slice of applied entries."""
        self._checks.changed()

    def _wake_if_true(self, wait: _Wait) -> int:
        is_so, future = wait
        if not future.done() and (self.ended or is_so()):
            future.set_result(None)
        return 1

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
