"""Stop a process whose event loop is blocked, for example in a read that a disk does not answer.

The watch of the disk runs on the event loop and sees only work on other threads. This watch runs on
a thread. It counts its own checks, so a process that was paused does not count as blocked. At each
check, the CPU clock of the loop's thread tells whether the loop is blocked or busy. A blocked loop
waits in a call of the operating system and uses no CPU time. A busy loop uses CPU time, however
late its next callback comes. A busy loop never ends the process: its work ends, and a restart would
only begin the same work on another node. The watch logs what a busy loop runs.

The thread needs the interpreter lock. RocksDB's library releases the lock in reads of many keys,
but not in reads of one key and in scans. Such a read stops all threads, and with them the
heartbeats: the other members elect a leader, and the liveness probe gets no answer. The thread
therefore sets a timer of ``faulthandler`` at each check. The timer needs no interpreter lock: it
writes the stacks of all threads and exits with status 1. This timer uses a clock, so it also ends
a process that was paused for longer than the time limit. A busy loop gives the lock away every few
milliseconds, and the thread then sets the timer again.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TextIO

import structlog

from taskraft_service.process.loop_runs import Place

log: Final = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 1.0
"""Interval between two checks, and between two increments of ``_signs`` by the event loop."""
HANG_CHECKS_MIN: Final = 10
"""Minimum number of checks without an increment after which an event loop counts as hung."""
STOP_SECONDS: Final = 1.0
"""Maximum time in which ``stop`` waits for the thread, which a full pipe of the log can block."""
BUSY_SHARE_MIN: Final = 0.01
"""CPU seconds of the loop's thread per second above which a silent event loop counts as busy."""
_UNKNOWN: Final = Place("unknown")


def cpu_clock_of_this_thread() -> Callable[[], float]:
    """Return the CPU clock of the calling thread, in seconds, for other threads to read.

    macOS has no such clock. There, the clock counts all threads of the process, so a blocked event
    loop counts as busy while other threads work.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))


class LoopWatch:
    """A thread that calls ``end`` when the event loop has been blocked for ``hang_ms``.

    Args:
        hang_ms: the time, at least ``HANG_CHECKS_MIN`` checks.
        end: ends the process; called on the thread with a text for the operator.
        stderr: a file with a descriptor, which receives the stacks if the interpreter is blocked.
        running: returns what the event loop runs.
        cpu_seconds: the CPU clock of the event loop's thread.
    """

    def __init__(
        self,
        hang_ms: int,
        end: Callable[[str], None],
        stderr: TextIO,
        running: Callable[[], Place | None],
        cpu_seconds: Callable[[], float],
    ) -> None:
        self._checks_max = max(HANG_CHECKS_MIN, round(hang_ms / 1000 / CHECK_SECONDS))
        self._end = end
        self._stderr = stderr
        self._running = running
        self._cpu_seconds = cpu_seconds
        self._signs = 0
        """Counter that the event loop increments at regular intervals."""
        self._seen = 0
        self._cpu_seen = cpu_seconds()
        self._blocked_checks = 0
        self._busy_checks = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the running event loop."""
        self.note_life()
        self._thread = threading.Thread(target=self._run, name="loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch, and its timer, which would end the process."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        if self._timer is not None:
            self._timer.cancel()

    def note_life(self) -> None:
        """Increment the counter now and at each interval; runs on the event loop."""
        self._signs += 1
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self.note_life)

    def check(self) -> None:
        """Compare the counter and the CPU clock with the last check; runs on the thread."""
        before, self._cpu_seen = self._cpu_seen, self._cpu_seconds()
        if self._signs != self._seen:
            self._seen = self._signs
            self._blocked_checks = self._busy_checks = 0
        elif self._cpu_seen - before >= BUSY_SHARE_MIN * CHECK_SECONDS:
            self._blocked_checks = 0
            self._busy_checks += 1
            if self._busy_checks % HANG_CHECKS_MIN == 0:
                self._log_busy()
        else:
            self._blocked_checks += 1
            if self._blocked_checks == self._checks_max:
                self._end(
                    f"the event loop has been blocked for {self._checks_max * CHECK_SECONDS:g} s in"
                    f" {self._place().name}: a call of the operating system does not return, such"
                    " as a read from a file; see the stacks"
                )

    def _log_busy(self) -> None:
        place = self._place()
        log.error(
            "the event loop is busy with one callback",
            seconds=self._busy_checks * CHECK_SECONDS,
            place=place.name,
            method=place.method,
        )

    def _place(self) -> Place:
        return self._running() or _UNKNOWN

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
