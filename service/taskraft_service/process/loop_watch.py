"""Stop a process whose event loop has hung, for example in a read from a disk that does not answer.

The watch of the disk runs on the event loop and sees only work on other threads. This watch runs on
a thread. It counts its own checks and reads no clock, so a process that was paused does not count
as hung.

The thread needs the interpreter lock. RocksDB's library releases the lock in reads of many keys,
but not in reads of one key and in scans. Such a read stops all threads, and with them the
heartbeats: the other members elect a leader, and the liveness probe gets no answer. The thread
therefore sets a timer of ``faulthandler`` at each check. The timer needs no interpreter lock: it
writes the stacks of all threads and exits with status 1. This timer uses a clock, so it also ends
a process that was paused for longer than the time limit.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import Callable
from typing import Final, TextIO

CHECK_SECONDS: Final = 1.0
"""Interval between two checks, and between two increments of ``_signs`` by the event loop."""
HANG_CHECKS_MIN: Final = 10
"""Minimum number of checks without an increment after which an event loop counts as hung."""


class LoopWatch:
    """A thread that calls ``end`` when the event loop has run no callback for ``hang_ms``.

    Args:
        hang_ms: the time, at least ``HANG_CHECKS_MIN`` checks.
        end: ends the process; called on the thread with a text for the operator.
        stderr: a file with a descriptor, which receives the stacks if the interpreter is blocked.
    """

    def __init__(self, hang_ms: int, end: Callable[[str], None], stderr: TextIO) -> None:
        self._checks_max = max(HANG_CHECKS_MIN, round(hang_ms / 1000 / CHECK_SECONDS))
        self._end = end
        self._stderr = stderr
        self._signs = 0
        """Counter that the event loop increments at regular intervals."""
        self._seen = 0
        self._silent_checks = 0
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the running event loop."""
        self.note_life()
        threading.Thread(target=self._run, name="loop-watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def note_life(self) -> None:
        """Increment the counter now and at each interval; runs on the event loop."""
        self._signs += 1
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self.note_life)

    def check(self) -> None:
        """Compare the counter with its value at the last check; runs on the thread."""
        if self._signs != self._seen:
            self._seen = self._signs
            self._silent_checks = 0
            return
        self._silent_checks += 1
        if self._silent_checks == self._checks_max:
            self._end(
                f"the event loop has not run for {self._checks_max * CHECK_SECONDS:g} s,"
                " probably because the disk of the state does not answer a read; check the disk"
            )

    def _run(self) -> None:
        seconds = self._checks_max * CHECK_SECONDS
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)
        while not self._stopped.wait(CHECK_SECONDS):
            self.check()
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)
        faulthandler.cancel_dump_traceback_later()


def end_process(stderr: TextIO, status: int, text: str) -> None:
    """Write a line and the stacks of all threads, and exit without waiting for any thread."""
    print(f"taskraft: {text}", file=stderr, flush=True)
    faulthandler.dump_traceback(stderr)
    os._exit(status)
