"""Run handlers in threads, and collect their results once per turn of the event loop.

`concurrent.futures` wakes a thread and the event loop for each call. In this pool, a thread that
has ended a call begins the next one without sleeping, and one wake-up of the event loop collects
the results of all calls that have ended until then.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from taskraft._handler_error import ordinary


class CallCounter(Protocol):
    """Counts the calls that run in the threads of pools; used by the test kit."""

    def counted(self, function: Callable[[], object]) -> Callable[[], object]:
        """Count a call that starts; return the function to call instead."""
        ...

    def ended(self) -> None:
        """Note the end of a call, on the event loop."""
        ...


call_counters: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, CallCounter]] = (
    WeakKeyDictionary()
)
"""Counters of the calls of all pools of an event loop."""


class ThreadCall:
    """A call in a thread; the thread goes on if the coroutine that waits for it is cancelled."""

    __slots__ = ("_context", "_error", "_function", "_value", "future", "is_done", "on_done")

    def __init__(
        self, function: Callable[[], object], context: Context, future: asyncio.Future[Any]
    ) -> None:
        self._function = function
        self._context = context
        self._value: object = None
        self._error: Exception | None = None
        self.future: Final = future
        """Future of the result. A coroutine that is cancelled while it waits cancels the future."""
        self.is_done = False
        """Whether the event loop knows that the function has ended."""
        self.on_done: Final[list[Callable[[], object]]] = []
        """Called on the event loop when the function has ended."""

    def run(self) -> None:
        """Call the function, in a thread of the pool."""
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001 - raised in the coroutine that waits
            self._error = ordinary(error)

    def end(self) -> None:
        """Hand the result to the coroutine that waits for it, on the event loop."""
        self.is_done = True
        if not self.future.done():
            if self._error is None:
                self.future.set_result(self._value)
            else:
                self.future.set_exception(self._error)
        for callback in self.on_done:
            callback()


class ThreadPool:
    """Runs calls in up to `threads_max` threads, which start when they are needed.

    The threads are daemons: the process can exit although a handler ignores the end of its
    worker.
    """

    def __init__(self, threads_max: int) -> None:
        """Make a pool of the running event loop."""
        self._threads_max = threads_max
        self._threads = 0
        self._unfinished = 0
        self._calls: Final[SimpleQueue[ThreadCall | None]] = SimpleQueue()
        self._ended: Final[deque[ThreadCall]] = deque()
        self._is_waking = False
        self._loop = asyncio.get_running_loop()
        self._counter = call_counters.get(self._loop)

    def start(self, function: Callable[[], object], context: Context) -> ThreadCall:
        """Call a function in a thread as soon as one is free."""
        if self._counter is not None:
            function = self._counter.counted(function)
        call = ThreadCall(function, context, self._loop.create_future())
        self._unfinished += 1
        if self._threads < min(self._unfinished, self._threads_max):
            self._threads += 1
            name = f"taskraft-worker-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._calls.put(call)
        return call

    def close(self) -> None:
        """Let each thread end after its call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        """Run calls until the pool is closed."""
        while (call := self._calls.get()) is not None:
            call.run()
            self._ended.append(call)
            # The append comes first: if a wake-up is pending, it will see the call.
            if not self._is_waking:
                self._is_waking = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed, so nobody waits for the call
                    return

    def _collect(self) -> None:
        """Deliver the results of all calls whose functions have returned."""
        self._is_waking = False
        while self._ended:
            call = self._ended.popleft()
            self._unfinished -= 1
            if self._counter is not None:
                self._counter.ended()
            call.end()
