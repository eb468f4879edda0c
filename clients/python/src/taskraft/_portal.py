"""Run coroutines from threads that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

from taskraft import _fork
from taskraft.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


class Portal:
    """An event loop in a background thread, started with the first call."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_used(self) -> bool:
        """The loop runs."""
        return self._loop is not None and not self._is_closed

    def run(
        self, coroutine: Coroutine[object, object, Result], timeout_seconds: float | None = None
    ) -> Result:
        """Run a coroutine and return its result; its context variables are the caller's.

        An exception in the calling thread, such as KeyboardInterrupt, cancels the coroutine.

        Raises:
            ClientClosed: The portal was closed.
            ClientForked: The loop belongs to the process that this one was forked from.
        """
        try:
            loop = self._running_loop()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(timeout_seconds)
        except BaseException:
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        _fork.check()
        if self._is_closed:
            raise ClientClosed("the client was closed")
        assert threading.current_thread() is not self._thread, "a call would wait for itself"
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

    def close(self) -> None:
        """Stop the loop and wait until its thread has ended."""
        self._is_closed = True
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
