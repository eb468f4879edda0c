"""Replace the clock of an event loop by a virtual clock, so that timers fire without real waiting.

The clock stands still while anything can run. When the loop is idle, the clock jumps to the next
timer. A loop is idle if no callback is ready and no thread of an executor works.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

from taskraft.testing.errors import ClockStuck
from taskraft.worker.thread_pool import call_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor
    from selectors import SelectorKey

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

REAL_SECONDS_MAX: Final = 30.0
"""Maximum real time of one call of the kit, in seconds."""
ROUNDING_SECONDS: Final = 1e-4
"""Tolerance for the comparison of times, in seconds: sums of the same durations may differ by less
than this time.
"""
IO_SECONDS: Final = 0.05
"""Real time for which an idle loop waits for sockets of the code under test, and for threads that
the clock ignores, in seconds."""

_thread: Final = threading.local()
"""Has the attribute `is_counted` in threads that a loop counts as working."""


class VirtualTime:
    """Replaces the clock of an event loop of asyncio, from `install` to `uninstall`.

    The clock continues from the time of the loop. Clock, selector and `run_in_executor` of the loop
    object are replaced, so the kit works with the loop that the test runs on. Calls in the threads
    of workers are counted too.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use `install` to replace the clock.

        Raises:
            RuntimeError: the loop is not asyncio's loop for selectors.
        """
        if not isinstance(loop, asyncio.SelectorEventLoop):
            raise RuntimeError(  # noqa: TRY004 - the caller chose the loop, not a type
                f"the test kit needs an asyncio.SelectorEventLoop, not a {type(loop).__name__}"
            )
        self.loop: Final[Any] = loop
        """The loop; untyped, because its internals are replaced."""
        self._now = float(math.ceil(loop.time()))
        self._real_until = math.inf
        """Real-time limit of the running call, by `time.monotonic`."""
        self._working = 0
        """Number of calls in executors."""
        self._blocked = 0
        """Number of these calls that wait for a coroutine of this loop."""
        self.waits_for_threads = True
        """Whether the clock stands still while threads of an executor work."""
        self._waited = 0.0
        self._pauses: list[tuple[float, asyncio.Future[None]]] = []
        """Times that the clock must not pass, with the coroutines that wait there."""
        self.wait_seconds_max = math.inf
        """Maximum virtual time that calls may skip by waiting."""
        self.is_postponed: Callable[[Any], bool] = lambda _: False
        """Tells whether the clock may pass a timer, which then fires late."""

    def install(self) -> None:
        """Replace the clock of the loop."""
        loop = self.loop
        self._selector = loop._selector  # noqa: SLF001 - asyncio offers no other way to see that a loop is idle
        self._select = self._selector.select
        self._run_in_executor = loop.run_in_executor
        self._selector.select = self._select_or_move
        loop.run_in_executor = self._counting_run_in_executor
        loop.time = self.time
        # A timer is due within the resolution of the clock. The resolution of asyncio is less than
        # the distance of two floats from 388 days on, and the timer would never be due.
        self._resolution = loop._clock_resolution  # noqa: SLF001 - asyncio sets no other tolerance
        loop._clock_resolution = ROUNDING_SECONDS  # noqa: SLF001 - as above
        call_counters[loop] = self

    def uninstall(self) -> None:
        """Restore the real clock of the loop."""
        del self._selector.select, self.loop.run_in_executor, self.loop.time
        self.loop._clock_resolution = self._resolution  # noqa: SLF001 - as in `install`
        del call_counters[self.loop]

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def limit_real_time(self) -> None:
        """Limit the starting call of the kit to `REAL_SECONDS_MAX` of real time."""
        self._real_until = time.monotonic() + REAL_SECONDS_MAX
        self._waited = 0.0

    async def run_until(self, until: float) -> None:
        """Run all other coroutines until they are idle and the clock has reached `until`."""
        self.limit_real_time()
        reached: asyncio.Future[None] = self.loop.create_future()
        self._pauses.append((until, reached))
        await reached

    def next_timer(self) -> float | None:
        """Return the time of the next timer that must not fire late; None: there is none."""
        due = self._next_due(self._now)
        return None if due == math.inf else due

    # ------------------------------------------------------------------------------ idle

    def _select_or_move(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Return the ready files; while the loop is idle, move the clock instead of blocking."""
        if time.monotonic() > self._real_until:
            self._real_until = math.inf
            raise ClockStuck(f"a call of the test kit has run for {REAL_SECONDS_MAX:g} s")
        ready: list[tuple[SelectorKey, int]] = self._select(0)
        if ready or timeout == 0:
            return ready
        if len(self._selector.get_map()) > 1:
            ready = self._select(IO_SECONDS)
            if ready:
                return ready
        if self._working > self._blocked:
            if self.waits_for_threads:
                return self._wait_for_threads()
            ready = self._select(IO_SECONDS)
            if ready:
                return ready
        self._move(timeout)
        return []

    def _wait_for_threads(self) -> list[tuple[SelectorKey, int]]:
        """Wait in real time until a thread wakes the loop."""
        left = min(self._real_until - time.monotonic(), REAL_SECONDS_MAX)
        ready: list[tuple[SelectorKey, int]] = self._select(max(left, 0.0))
        if not ready:
            raise ClockStuck(
                f"a handler in a thread has run for {REAL_SECONDS_MAX:g} s of real time"
            )
        return ready

    def _move(self, timeout: float | None) -> None:
        """Move the clock to the next timer, or end a call of `run_until`."""
        due = math.inf if timeout is None else self._next_due(self._now + timeout)
        if self._pauses:
            pause = min(self._pauses, key=lambda each: each[0])
            if due > pause[0] + ROUNDING_SECONDS:
                self._now = max(self._now, _whole_ms(pause[0]))
                self._pauses.remove(pause)
                self.loop.call_soon(_set_done, pause[1])
                return
        else:
            self._check_wait(due)
        # A time just behind a whole millisecond is rounded down; its timer must fire too.
        self._now = max(self._now, _whole_ms(due), due)

    def _next_due(self, first: float) -> float:
        """Return the time of the next timer that must not fire late."""
        dues: list[float] = [
            timer.when()
            for timer in self.loop._scheduled  # noqa: SLF001 - asyncio has no public list of timers
            if not timer.cancelled() and not self.is_postponed(timer)
        ]
        return max(min(dues), first) if dues else math.inf

    def _check_wait(self, due: float) -> None:
        """Raise ClockStuck if no timer is set, or too much virtual time was skipped."""
        if due == math.inf:
            raise ClockStuck(
                "a call waits for something that does not happen: no timer is set and no thread "
                "works; is the worker running?"
            )
        self._waited += due - self._now
        if self._waited > self.wait_seconds_max:
            raise ClockStuck(
                f"a call has waited for {self.wait_seconds_max / 3_600:g} h of virtual time; give "
                "it a limit, run the worker, or advance the clock before the call"
            )

    # ------------------------------------------------------------------------------ threads

    def _counting_run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Args]], Result], *args: *Args
    ) -> asyncio.Future[Result]:
        """Run a function in a thread; the clock stands still until the function returns."""
        counted = self.counted(partial(func, *args))
        future: asyncio.Future[Result] = self._run_in_executor(executor, counted)
        future.add_done_callback(lambda _: self.ended())
        return future

    def counted(self, function: Callable[[], Result]) -> Callable[[], Result]:
        """Count a call in a thread; return the function to call there."""
        self._working += 1

        def counted() -> Result:
            _thread.is_counted = True
            try:
                return function()
            finally:
                _thread.is_counted = False

        return counted

    def ended(self) -> None:
        """Note the end of a counted call; the clock may go on."""
        self._working -= 1

    def waited_for(
        self, coroutine: Coroutine[object, object, Result]
    ) -> Coroutine[object, object, Result]:
        """Return a coroutine for which the current thread will wait.

        The clock may move while the thread waits.
        """
        if not getattr(_thread, "is_counted", False):
            return coroutine
        return self._counted(coroutine)

    async def _counted(self, coroutine: Coroutine[object, object, Result]) -> Result:
        self._blocked += 1
        try:
            return await coroutine
        finally:
            self._blocked -= 1


def _whole_ms(seconds: float) -> float:
    """Return the next whole millisecond, because the times of the cluster are whole ones.

    Otherwise a deadline could fall behind the end of the time for which the test runs.
    """
    return math.ceil(seconds * 1_000 - ROUNDING_SECONDS) / 1_000


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
