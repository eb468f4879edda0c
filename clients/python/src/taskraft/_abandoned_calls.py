"""Finish in the background what a cancelled caller has begun.

A call can be cancelled at any time: by `asyncio.wait_for`, by `Task.cancel`, or in a blocking
client by Ctrl-C. One rule decides what becomes of its effect, which the caller cannot see:

1. A take is decided and given back; see `_abandoned_takes`.
2. The opening of the session of the takes, the end of a task's block, and `close` of a subscription
   or a client continue in the background. The session is then used by the next take, or closed
   with the client.
3. Any other change that was not sent has no effect. A change that was sent may take effect, once.
   A caller that has to know chooses the request_id, and repeats the call with it.
4. A session whose subscription was closed before the answer to its opening holds no task, and
   expires after its TTR.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger("taskraft")

Result = TypeVar("Result")


class AbandonedCalls:
    """The calls of one client that continue after the cancellation of their callers."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """True if no call runs in the background."""
        return not self._running

    async def finish(self, call: Coroutine[object, object, Result]) -> Result:
        """Return the result of a call that continues if the caller is cancelled."""
        running = self._start(call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_report)
            raise

    def go_on(self, call: Coroutine[object, object, object]) -> None:
        """Run a call in the background, unless the client is closed."""
        if self._is_closed:
            call.close()
        else:
            self._start(call).add_done_callback(_report)

    def _start(self, call: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        running = asyncio.get_running_loop().create_task(call)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def close(self, seconds: float) -> None:
        """Wait for the calls, and cancel those that last too long."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=seconds)
            for task in late:
                task.cancel()
        self._is_closed = True


def _report(call: asyncio.Task[object]) -> None:
    """Log the failure of a call whose caller was cancelled."""
    if not call.cancelled() and (error := call.exception()) is not None:
        log.warning("a cancelled call has failed in the background: %s", error)
