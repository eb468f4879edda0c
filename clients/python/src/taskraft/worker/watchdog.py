"""End a process of workers: handle SIGTERM and SIGINT, and end a process that does not end itself.

The watchdog is a thread, so a handler that blocks the event loop does not delay a signal. The
interpreter writes the number of each signal to a pipe (`signal.set_wakeup_fd`), on which the thread
waits. If the app replaces this pipe (`loop.add_signal_handler`), the watchdog still sees the signal
in its handler, which the main thread calls.

`os._exit` ends the process: the default action of a signal has no effect on a process with PID 1,
and the end of the interpreter waits for threads.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import select
import signal
import threading
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from taskraft.worker.life_cycle import (
    END_SECONDS_MAX,
    ExitReason,
    LifeCycle,
    ProcessLife,
    Response,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that end the process."""
SIGNAL_STATUS: Final = 128
"""Added to the number of a signal: the exit status of a process that a signal ends."""
WAKE: Final = b"\0"
"""Byte that wakes the thread; no signal has the number 0."""
PIPE_BYTES: Final = 4_096
POLL_SECONDS_MAX: Final = 3_600.0
"""Maximum time of one wait of the thread, in seconds; `poll` takes at most 24 days."""
PRINT_SECONDS_MAX: Final = 0.15
"""Maximum time for the stacks: standard error may be a pipe that nobody reads."""
STDERR: Final = 2
"""File descriptor of standard error."""


class WatchedWorker(Protocol):
    """A worker that the watchdog can stop; the methods are called from any thread."""

    @property
    def life(self) -> LifeCycle:
        """Life cycle of the run."""
        ...

    def request_stop(self) -> None:
        """Ask the event loop of the worker to stop the worker."""
        ...

    def kill_processes(self) -> None:
        """Kill the processes of the worker, without waiting."""
        ...

    def handlers(self) -> Iterable[asyncio.Task[None]]:
        """Return the asyncio tasks of the handlers that have not ended."""
        ...


class Watchdog:
    """Handles the signals of this process from `install` to `uninstall`."""

    def __init__(self, *, is_of_process: bool = False) -> None:
        """Prepare the thread.

        Args:
            is_of_process: the process ends after its worker, whether or not a signal has come.
        """
        self._is_of_process = is_of_process
        self._life = ProcessLife()
        self._workers: list[WatchedWorker] = []
        self._acting = threading.Lock()
        self._received: Counter[int] = Counter()
        self._handled: Counter[int] = Counter()
        self._acted: Counter[int] = Counter()
        self._is_handling = False
        self._is_closed = False
        self._former_pipe = -1
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(target=self._watch, name="taskraft-watchdog", daemon=True)

    def install(self) -> None:
        """Handle the signals.

        Raises:
            ValueError: this is not the main thread.
        """
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        self.take_pipe()
        self._thread.start()

    def take_pipe(self) -> None:
        """Receive signals through the pipe again, in the main thread.

        An event loop takes the signals over when the app calls `loop.add_signal_handler`. The
        watchdog then forwards all signals to the loop.
        """
        pipe = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if pipe != self._writer:
            self._former_pipe = pipe

    def uninstall(self) -> None:
        """Restore the previous handlers."""
        self.let_go()
        self._is_closed = True
        self.wake()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        os.close(self._reader)
        os.close(self._writer)

    def let_go(self) -> None:
        """Restore the previous handlers, without waiting for the thread."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        pipe = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(self._former_pipe if pipe == self._writer else pipe)

    def add(self, worker: WatchedWorker) -> None:
        """Stop a worker at the next signal, or at once if a signal has come."""
        self._life.add(worker.life, time.monotonic())
        self._workers.append(worker)
        if worker.life.is_stopping:
            worker.request_stop()

    def remove(self, worker: WatchedWorker) -> None:
        """Forget a worker whose run has ended."""
        self._life.remove(worker.life)
        self._workers.remove(worker)

    @property
    def has_workers(self) -> bool:
        """Whether a worker runs, or was not removed after its run."""
        return bool(self._workers)

    @property
    def stays(self) -> bool:
        """Whether the watchdog goes on after the run of a worker, because the process must end."""
        return self._is_of_process or self._life.is_signalled

    def wake(self) -> None:
        """Let the thread read the life cycles again."""
        with suppress(BlockingIOError):  # a full pipe wakes the thread too
            os.write(self._writer, WAKE)

    def arm(self) -> None:
        """Note that a worker was asked to stop: from now on, the process has a time to end.

        If a C function never lets other threads run, the thread of the watchdog cannot end the
        process. So a timer of the interpreter prints the stacks and ends the process with status 1.
        """
        ends_at = self._life.ends_at
        if ends_at is not None:
            left = max(ends_at - time.monotonic(), 0.0) + END_SECONDS_MAX
            faulthandler.dump_traceback_later(left, exit=True, file=STDERR)
        self.wake()

    # ------------------------------------------------------------------------------ signals

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Act on a signal in the main thread, or wait until the thread has acted on it.

        The interrupted code may let no other thread run, so after this method nobody might act.
        """
        self._handled[number] += 1
        self.take_pipe()
        self.wake()
        while not self._is_handling and self._is_behind():
            self._is_handling = True  # a signal that interrupts this method leaves the work to it
            try:
                with self._acting:
                    self._act()
            finally:
                self._is_handling = False

    def _is_behind(self) -> bool:
        """Whether a signal has come on which nobody has finished to act."""
        return self._acting.locked() or any(self._unacted(number) for number in SIGNALS)

    def _unacted(self, number: int) -> int:
        return max(self._received[number], self._handled[number]) - self._acted[number]

    def _act(self) -> None:
        """Act on each signal once, whether the pipe or the main thread has told it."""
        for number in SIGNALS:
            while self._unacted(number) > 0:
                self._acted[number] += 1
                self._signalled(number)

    def _signalled(self, number: int) -> None:
        match self._life.signalled(time.monotonic()):
            case Response.EXIT:
                self._end(SIGNAL_STATUS + number)
            case Response.EXIT_UNBEGUN:
                self._end(ExitReason.DRAINED)
            case Response.STOP:
                for worker in self._workers:
                    worker.request_stop()
                self.arm()

    # ------------------------------------------------------------------------------- thread

    def _watch(self) -> None:
        """Act on signals, and end the process when its time is over."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while not self._is_closed:
            ends_at = self._life.ends_at
            left = POLL_SECONDS_MAX if ends_at is None else ends_at - time.monotonic()
            if poll.poll(min(max(left, 0.0), POLL_SECONDS_MAX) * 1_000):
                self._receive(os.read(self._reader, PIPE_BYTES))
            elif (ends_at := self._life.ends_at) is not None and time.monotonic() >= ends_at:
                self._end_late()

    def _receive(self, numbers: bytes) -> None:
        signals = numbers.replace(WAKE, b"")
        self._received.update(signals)
        if signals and self._former_pipe >= 0:
            with suppress(OSError):  # the pipe of an event loop, which may be closed
                os.write(self._former_pipe, signals)
        with self._acting:
            self._act()

    def _end_late(self) -> None:
        """Print all stacks, and end the process."""
        printing = threading.Thread(target=self._print_stacks, daemon=True)
        with suppress(RuntimeError):  # the process can have no more threads
            printing.start()
            printing.join(PRINT_SECONDS_MAX)
        self._end(ExitReason.HANDLERS_STUCK)

    def _print_stacks(self) -> None:
        os.write(STDERR, b"taskraft worker: the process did not end within the cancel grace\n")
        faulthandler.dump_traceback(file=STDERR, all_threads=True)
        for worker in self._workers:
            for handler in worker.handlers():
                text = "".join(traceback.format_list(await_stack(handler)))
                os.write(STDERR, f"Handler that ignores its cancellation:\n{text}".encode())

    def _end(self, status: int) -> None:
        for worker in self._workers:
            worker.kill_processes()
        os._exit(status)


def await_stack(task: asyncio.Task[None]) -> list[traceback.FrameSummary]:
    """Return the places at which the coroutines of an asyncio task wait, the outermost first."""
    found: list[traceback.FrameSummary] = []
    waiting: object = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        code = frame.f_code
        found.append(traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
        waiting = getattr(waiting, "cr_await", None)
        if isinstance(waiting, asyncio.Task):
            waiting = waiting.get_coro()
    return found


# ------------------------------------------------------------------------ of this process

_installed: Watchdog | None = None


_masks = threading.local()


def _before_fork() -> None:
    """Hold signals back until the forked process has its own handlers."""
    if _installed is not None:
        _masks.former = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _after_fork() -> None:
    former = vars(_masks).pop("former", None)
    if former is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _forget_in_child() -> None:
    """Give a forked process its own signals: the pipe belongs to the process of the worker."""
    global _installed  # noqa: PLW0603 - one per process, as signals are
    if _installed is not None:
        _installed.let_go()
        signal.set_wakeup_fd(-1)
        _installed = None
    _after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_in_child
)


@contextmanager
def process_watched() -> Iterator[None]:
    """While the block runs, handle signals, also before the first worker and after the last one."""
    global _installed  # noqa: PLW0603 - one per process, as signals are
    watchdog = Watchdog(is_of_process=True)
    watchdog.install()
    _installed = watchdog
    try:
        yield
    finally:
        _installed = None
        watchdog.uninstall()


@contextmanager
def worker_watched(worker: WatchedWorker) -> Iterator[Watchdog]:
    """While the block runs, let a signal stop the worker.

    After a signal, the watchdog goes on after the block: the process was asked to end.

    Raises:
        ValueError: this is not the main thread.
    """
    global _installed  # noqa: PLW0603 - one per process, as signals are
    if _installed is None:
        watchdog = Watchdog()
        watchdog.install()
        _installed = watchdog
    watchdog = _installed
    watchdog.add(worker)
    try:
        yield watchdog
    finally:
        worker.life.end(time.monotonic())
        if watchdog.stays:
            watchdog.arm()
        else:
            watchdog.remove(worker)
            if not watchdog.has_workers:
                _installed = None
                watchdog.uninstall()
