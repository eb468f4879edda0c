"""Run the storage work of a group on a thread of its own, one piece at a time.

The event loop must never wait for a disk: a slow sync would stop the heartbeats and cost the
leadership. Writing and syncing release the interpreter while the disk works.
"""

from __future__ import annotations

import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

IDLE_SECONDS: Final = 0.2
"""Pause in the work after which the mark is synced, so that it soon covers the last batch."""

MARK_SECONDS: Final = 1.0
"""Longest time that the mark trails while there is work."""


class StorageWorker:
    """A thread with a queue; results come back to the event loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        when_idle: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``when_idle`` runs on the thread in pauses; ``failed`` on the loop, at most once.

        After a failure nothing more is run: what has not been reported is unknown.
        """
        self.busy_us = 0
        """Time spent working, in microseconds."""
        self._loop = loop
        self._when_idle = when_idle
        self._failed = failed
        self._queue: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run ``work`` on the thread, then ``then`` with its result on the loop."""

        def run() -> Callable[[], None]:
            result = work()
            return lambda: then(result)

        self._queue.put(run)

    def stop(self) -> None:
        """End the thread after what is queued; blocks until then."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node must stop
            self._report(self._failed, error)

    def _work(self) -> None:
        is_marked = True
        marked_at = time.monotonic()
        while True:
            try:
                work = self._queue.get(timeout=None if is_marked else IDLE_SECONDS)
            except Empty:
                self._when_idle()
                is_marked = True
                continue
            if work is None:
                return
            begun = time.perf_counter_ns()
            then = work()
            self.busy_us += (time.perf_counter_ns() - begun) // 1000
            self._report(then)
            is_marked = False
            now = time.monotonic()
            if now - marked_at > MARK_SECONDS:
                self._when_idle()
                marked_at = now

    def _report(self, callback: Callable[..., None], *arguments: Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop is closed: nobody is left who could want to know.
            assert self._loop.is_closed()
