"""Run handlers in processes, each of which runs one handler at a time."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from taskraft._handler_error import ordinary
from taskraft.worker.child_process import (
    Call,
    Interrupt,
    Notice,
    Raised,
    Ready,
    Reference,
    Reported,
    Returned,
    main,
    reference_of,
)
from taskraft.worker.errors import NotBegun, WorkerError, WorkerLost
from taskraft.worker.forwarded_log import Line, LogSettings, handle_forwarded
from taskraft.worker.task import TaskFunction

if TYPE_CHECKING:
    from taskraft.worker.app import App

log = logging.getLogger("taskraft.worker")

RESTART_SECONDS: Final = 1.0
"""Pause after a failed start of a process before the next attempt, in seconds."""
SPAWN: Final = multiprocessing.get_context("spawn")

EXIT_SECONDS_MAX: Final = 1.0
"""Maximum time between the end of the pipe and the end of a process, in seconds."""

Progress: TypeAlias = Callable[[float, str], None]
Value = TypeVar("Value")


class PooledProcess:
    """One process of the pool; the methods block, and run in threads."""

    def __init__(self, reference: Reference, names: Sequence[str]) -> None:
        self._connection, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(
            target=main,
            args=(theirs, reference, names, LogSettings.of_worker()),
            name="taskraft-worker",
        )
        self._theirs = theirs
        self._sending = threading.Lock()
        self._first_bytes = 0
        self._memory_bytes = 0
        self._is_killed = False
        self.calls = 0
        """Number of calls so far."""
        self.is_usable = False
        """True while the process can take calls."""

    @property
    def growth_bytes(self) -> int:
        """Memory that the process has gained since its start."""
        return self._memory_bytes - self._first_bytes

    def start(self) -> None:
        """Start the process, and wait until it has imported the app.

        Raises:
            WorkerError: the process has died, or the import failed.
        """
        self._process.start()
        self._theirs.close()
        if self._is_killed:  # during the start
            self.kill()
        ready = self._answer(lambda _share, _note: None)
        if isinstance(ready, Raised):
            self.kill()
            raise WorkerError(f"a process of the pool cannot start: {ready.traceback}")
        self._first_bytes = self._memory_bytes = ready.memory_bytes
        self.is_usable = True

    def call(self, call: Call, progress: Progress) -> Returned:
        """Run a handler.

        Raises:
            WorkerLost: the process has died.
            Exception: the failure of the handler, never one that a future cannot hold.
        """
        self.calls += 1
        self.send(call)
        try:
            answer = self._answer(progress)
        except BaseException as error:  # noqa: BLE001 - the exception can run code of the app
            self.is_usable = False  # its answer may still come, and belongs to no other call
            raise ordinary(error)  # noqa: B904 - the cause is set
        self._memory_bytes = answer.memory_bytes
        if isinstance(answer, Raised):
            answer.error.__cause__ = _RemoteTraceback(answer.traceback)
            raise answer.error
        assert isinstance(answer, Returned)
        return answer

    def _answer(self, progress: Progress) -> Ready | Returned | Raised:
        """Process the frames from the child process until an answer arrives, and return it."""
        while True:
            try:
                frame = self._connection.recv()
            except (EOFError, OSError):
                raise self._lost() from None
            if isinstance(frame, Reported):
                progress(*frame)
            elif isinstance(frame, Line):
                handle_forwarded(frame)
            else:
                assert isinstance(frame, Ready | Returned | Raised)
                return frame

    def send(self, frame: Call | Notice | Interrupt) -> None:
        """Send a frame; `_answer` detects a process that has died."""
        with self._sending, suppress(OSError):
            self._connection.send(frame)

    def _lost(self) -> WorkerLost:
        self._process.join(EXIT_SECONDS_MAX)
        self.kill()
        self._process.join()
        status = self._process.exitcode
        assert status is not None
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return WorkerLost(f"the process of the handler ended {how}")

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.is_alive()

    def close(self, timeout_seconds: float) -> None:
        """Let an idle process end its lifespans; kill it after the timeout."""
        self.is_usable = False
        self._connection.close()
        if self._process.pid is not None:
            self._process.join(timeout_seconds)
            self.kill()
            self._process.join()

    def kill(self) -> None:
        """Kill the process and the programs that it has started, without waiting."""
        self.is_usable = False
        self._is_killed = True
        pid = self._process.pid
        if pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self._process.kill()  # without effect unless the process has no group yet


class ProcessLimits(NamedTuple):
    """Limits after which a process is replaced; None: no limit."""

    tasks_max: int | None = None
    """Maximum number of tasks that a process runs."""
    growth_bytes_max: int | None = None
    """Maximum growth of the process's memory after it was ready, in bytes."""

    def is_reached(self, process: PooledProcess) -> bool:
        """Return whether a process must be replaced before its next task."""
        if self.tasks_max is not None and process.calls >= self.tasks_max:
            return True
        return self.growth_bytes_max is not None and process.growth_bytes > self.growth_bytes_max


class _RemoteTraceback(Exception):
    """Shows the traceback of another process, as concurrent.futures does."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}\n"""'


class ProcessPool:
    """A fixed number of processes; a process that has ended is replaced."""

    def __init__(
        self,
        app: App,
        tasks: Sequence[TaskFunction[..., Any]],
        size: int,
        limits: ProcessLimits,
        *,
        grace_seconds: float,
    ) -> None:
        """Check that processes can import the app.

        Args:
            app: app of the tasks, a global of a module.
            tasks: tasks that the processes run.
            size: number of processes.
            limits: limits after which a process is replaced.
            grace_seconds: time that an interrupted handler has to clean up.

        Raises:
            InvalidTask: no module has the app as a global.
        """
        self._reference = reference_of(app)
        self._names = [task.name for task in tasks]
        self._size = size
        self._limits = limits
        self._grace_seconds = grace_seconds
        self._threads = ThreadPoolExecutor(size, "taskraft-process")
        self._idle: asyncio.Queue[PooledProcess | None] = asyncio.Queue()
        self._waiting = 0
        self._failing = 0
        self._processes: set[PooledProcess] = set()
        self._replacing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start all processes, and wait until they are ready.

        Raises:
            WorkerError: a process cannot start.
        """
        await asyncio.gather(*(self._start() for _ in range(self._size)))

    async def _start(self) -> None:
        process = PooledProcess(self._reference, self._names)
        self._processes.add(process)
        try:
            await self._in_thread(process.start)
        except BaseException:
            process.kill()  # a cancelled start goes on in its thread
            self._processes.discard(process)
            raise
        self._idle.put_nowait(process)

    async def take(self) -> PooledProcess:
        """Return an idle process, once there is one; give it back with `give_back`.

        Raises:
            NotBegun: there is no process, and none can start.
        """
        while not self.is_down:
            self._waiting += 1
            try:
                process = await self._idle.get()
            finally:
                self._waiting -= 1
            if process is None:  # the pool was down, and may be up again
                continue
            if process.is_alive():
                return process
            log.warning("an idle process of the pool has died")
            process.is_usable = False
            self.give_back(process)
        raise NotBegun("no process of the pool can start")

    @property
    def is_down(self) -> bool:
        """True while there is no process, and the last start of each one has failed."""
        return self._failing == self._size

    async def run(self, process: PooledProcess, call: Call, progress: Progress) -> Returned:
        """Run a handler; if this coroutine is cancelled, interrupt the handler and await its end.

        Raises:
            WorkerLost: the process has died.
            Exception: the failure of the handler.
        """
        running = self._in_thread(partial(process.call, call, progress))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            process.is_usable = False
            process.send(Interrupt(self._grace_seconds))
            try:
                await asyncio.wait([running], timeout=self._grace_seconds)
            finally:
                process.kill()
                running.add_done_callback(_retrieved)
            await asyncio.wait([running], timeout=EXIT_SECONDS_MAX)
            raise

    def give_back(self, process: PooledProcess) -> None:
        """Make a process available again, or replace it."""
        limits = self._limits
        if limits.is_reached(process):
            process.is_usable = False
        if process.is_usable:
            self._idle.put_nowait(process)
        elif process in self._processes:
            self._processes.discard(process)
            replacing = asyncio.create_task(self._replace(process))
            self._replacing.add(replacing)
            replacing.add_done_callback(self._replacing.discard)

    async def _replace(self, process: PooledProcess) -> None:
        await self._in_thread(partial(process.close, self._grace_seconds))
        try:
            await self._start()
        except WorkerError as error:
            log.warning("%s", error)
        else:
            return
        self._failing += 1
        if self.is_down:
            for _ in range(self._waiting):
                self._idle.put_nowait(None)
        try:
            await self._start_again()
        finally:
            self._failing -= 1

    async def _start_again(self) -> None:
        """Start a process; try again until a start succeeds."""
        while True:
            await asyncio.sleep(RESTART_SECONDS)
            try:
                await self._start()
            except WorkerError as error:
                log.warning("%s", error)
            else:
                return

    async def close(self) -> None:
        """End all processes: their lifespans and dependencies are closed within the grace."""
        for replacing in self._replacing:
            replacing.cancel()
        for process in self._processes:
            if not process.is_usable:  # the process starts, or was interrupted
                process.kill()
        closing = [
            self._in_thread(partial(process.close, self._grace_seconds))
            for process in self._processes
        ]
        await asyncio.gather(*closing, *self._replacing, return_exceptions=True)
        self._threads.shutdown(wait=False)

    def kill(self) -> None:
        """Kill all processes, from any thread, without waiting."""
        for process in tuple(self._processes):
            process.kill()

    def _in_thread(self, function: Callable[[], Value]) -> asyncio.Future[Value]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function)


def _retrieved(running: asyncio.Future[Returned]) -> None:
    """Mark the result of an interrupted handler as seen."""
    if not running.cancelled():
        running.exception()
