"""Run the storage work of a group on its own thread, one item at a time.

The event loop must never wait for a disk, because a slow fsync would delay heartbeats, and the
leader would lose its leadership. Writes and fsyncs release the interpreter lock.

A thread that wakes up needs the interpreter lock before it can do anything, and a busy event loop
keeps the lock for up to 5 ms. The event loop therefore hands the lock over with the work: the loop
waits until the thread has begun, which takes about 50 µs.
"""

from __future__ import annotations

import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from taskraft_replication.effects import StorageWork

T = TypeVar("T")

IDLE_SECONDS: Final = 0.2
"""Idle time after which the mark is fsynced, so that it covers the last batch."""

HAND_OVER_SECONDS: Final = 0.001
"""Maximum time for which the event loop waits until the thread has begun."""

MARK_SECONDS: Final = 1.0
"""Maximum age of the durable mark while there is work."""


class StorageWorker:
    """A thread with a queue; results are delivered on the event loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        when_idle: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``when_idle`` runs on the thread when idle; ``failed`` runs on the loop, at most once.

        After a failure no more work is run; the outcome of unreported work is unknown.
        """
        self.work = StorageWork()
        self.busy_us = 0
        """Time spent on work, in microseconds."""
        self._loop = loop
        self._when_idle = when_idle
        self._failed = failed
        self._queue: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = (
            SimpleQueue()
        )
        """Work with the function that gets its result; None ends the thread."""
        self._is_waiting = False
        """Whether the thread waits for work."""
        self._begun = threading.Lock()
        """Released by the thread when it has begun the work that the event loop handed over."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work`` on the thread, then ``then`` with its result on the event loop."""
        self.work.requested += 1
        if not self._is_waiting:
            self._queue.put((work, then))
            return
        self._begun.acquire(blocking=False)  # the thread may have begun too late the last time
        self._queue.put((work, then))
        self._begun.acquire(timeout=HAND_OVER_SECONDS)

    def stop(self) -> None:
        """Finish the queued work and end the thread; blocks until then."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - any exception must stop the node
            self._report(self._failed, error)

    def _work(self) -> None:
        is_marked = True
        marked_at = time.monotonic()
        while True:
            self._is_waiting = self._queue.empty()
            try:
                taken = self._queue.get(timeout=None if is_marked else IDLE_SECONDS)
            except Empty:
                self._is_waiting = False
                self._when_idle()
                is_marked = True
                continue
            self._is_waiting = False
            if self._begun.locked():
                self._begun.release()
            if taken is None:
                return
            work, then = taken
            begun = time.perf_counter_ns()
            result = work()
            self.work.finished += 1
            self.busy_us += (time.perf_counter_ns() - begun) // 1000
            self._report(then, result)
            is_marked = False
            now = time.monotonic()
            if now - marked_at > MARK_SECONDS:
                self._when_idle()
                marked_at = now

    def _report(self, callback: Callable[[T], None], argument: T) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            # The loop is closed, so no caller is left.
            assert self._loop.is_closed()
