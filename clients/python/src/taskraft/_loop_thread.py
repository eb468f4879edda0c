"""Run an event loop in a background thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from taskraft import _fork
from taskraft.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

SIGNAL_SECONDS: Final = 0.5
"""Maximum delay of Ctrl-C in seconds, because CPython can miss a signal just before it blocks.

CPython's main thread releases the GIL and then waits for the lock. A signal between the two steps
does not end the wait. On a loaded machine, the time between them is long.
"""


class LoopThread:
    """An event loop in a background thread; it starts with the first call."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_used(self) -> bool:
        """True if the event loop is running."""
        return self._loop is not None and not self._is_closed

    @property
    def is_current(self) -> bool:
        """True if the caller runs in the thread of the loop."""
        return threading.current_thread() is self._thread

    def run(
        self, coroutine: Coroutine[object, object, Result], timeout_seconds: float | None = None
    ) -> Result:
        """Run a coroutine and return its result, or raise TimeoutError."""
        try:
            loop = self._running_loop()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            if timeout_seconds is not None:
                return future.result(timeout_seconds)
            while not future.done():
                with contextlib.suppress(TimeoutError):
                    return future.result(SIGNAL_SECONDS)
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        _fork.check()
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if self.is_current:
            raise RuntimeError(
                "this call would deadlock: put_many reads its iterable in the client's own thread, "
                "and blocking calls are not possible there; build a list first, or use a second "
                "client inside the iterable"
            )
        if self._loop is None:
            with self._starting:
                if self._loop is None:
                    loop = asyncio.new_event_loop()
                    self._thread = threading.Thread(
                        target=self._serve, args=(loop,), name="taskraft-client", daemon=True
                    )
                    self._thread.start()
                    self._loop = loop
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def close(self, timeout_seconds: float | None = None) -> None:
        """Stop the loop and wait until its thread has ended."""
        was_closed, self._is_closed = self._is_closed, True
        if was_closed or self._loop is None or self._thread is None or _fork.is_forked():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join(timeout_seconds)
