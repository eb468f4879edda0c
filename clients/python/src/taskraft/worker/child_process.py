"""The code of one process of the process pool: receive tasks by pipe, run them, send the outcome.

The worker holds the leases and the connection to the cluster. This process imports the app again,
because it is spawned: a fork would copy the threads and the channels of the worker in an unusable
state.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import queue
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from taskraft import AsyncClient, PlannedTask, Task
from taskraft._handler_error import HandlerError, handler_error, ordinary
from taskraft.v1 import task_pb2
from taskraft.worker.context import Context
from taskraft.worker.dependencies import Providers
from taskraft.worker.errors import InvalidTask
from taskraft.worker.forwarded_log import LogSettings
from taskraft.worker.settlements import is_fatal
from taskraft.worker.steps import Step
from taskraft.worker.task import TaskFunction

if TYPE_CHECKING:
    from taskraft.worker.app import App

Reference: TypeAlias = tuple[str, str]
"""Module of an app, and the name of its global."""

ORPHAN_SECONDS_MAX: Final = 5.0
"""Maximum time for which a handler may clean up after its worker has died."""
INTERRUPT: Final = signal.SIGTERM
"""Signal to the main thread of the process that interrupts a handler."""


class Call(NamedTuple):
    """Worker to process: run a task."""

    name: str
    """Type of the task."""
    message: bytes
    """The task as a serialised message."""
    deadline: float | None
    """End of the time limit by `time.monotonic`."""
    is_cancel_requested: bool
    earlier: Sequence[Step]
    """Tasks that the task has waited for."""
    trace: Mapping[str, str]
    """Ids of trace and span, for log records; empty: tracing is off."""


class Notice(NamedTuple):
    """Worker to process: a flag of the context has become true."""

    flag: str


class Interrupt(NamedTuple):
    """Worker to process: end the handler and the process."""

    grace_seconds: float
    """Time after which the process ends although the handler still runs."""


class Ready(NamedTuple):
    """Process to worker: the app is imported, and its lifespans have started."""

    memory_bytes: int


class Reported(NamedTuple):
    """Process to worker: the handler has made progress."""

    share: float
    note: str


class Returned(NamedTuple):
    """Process to worker: the handler has returned."""

    result: bytes
    """The encoded result."""
    plans: Sequence[PlannedTask]
    """Tasks to put with the acknowledgement."""
    memory_bytes: int


class Raised(NamedTuple):
    """Process to worker: the handler has failed, or the process cannot start."""

    error: Exception
    traceback: str
    memory_bytes: int


class Interrupted(BaseException):
    """Raised in the main thread of the process: the worker has ended the handler.

    A handler that raises this exception by itself has failed.
    """


class ChildContext(Context):
    """The context of a handler in a process of its own."""

    __slots__ = ("_is_cancel_requested", "_send", "_trace")

    def __init__(self, call: Call, send: Callable[[Reported], None]) -> None:
        super().__init__(Task(task_pb2.Task.FromString(call.message)), call.deadline)
        self.earlier = call.earlier
        self._send = send
        self._is_cancel_requested = call.is_cancel_requested
        self._trace = call.trace

    @property
    def log_fields(self) -> Mapping[str, object]:
        """Fields of log records; trace and span are the worker's, unless the handler has a span."""
        return {**self._trace, **super().log_fields}

    @property
    def client(self) -> AsyncClient:
        """Raise RuntimeError, because only the process of the worker has a connection."""
        raise RuntimeError(
            "a handler in a process has no client of the worker; put tasks with task.put(), or "
            "with ctx.put_on_success()"
        )

    @property
    def is_cancel_requested(self) -> bool:
        """True if someone has cancelled the task."""
        return self._is_cancel_requested

    @property
    def is_lost(self) -> bool:
        """Always False, because the worker ends this process when the lease ends."""
        return False

    def noticed(self, flag: str) -> None:
        """Set a flag that the worker has sent."""
        if flag == "is_stopping":
            self.is_stopping = True
        else:
            self._is_cancel_requested = True

    def _report(self, share: float, note: str) -> None:
        self._send(Reported(share, note))


class Child:
    """Runs the tasks that arrive on a pipe, one after the other, in the main thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.RLock()
        self._calls: queue.SimpleQueue[tuple[Call, ChildContext] | None] = queue.SimpleQueue()
        self._context: ChildContext | None = None
        self._is_ending = False
        self._is_interrupted = False
        self._tasks: dict[str, TaskFunction[..., Any]] = {}
        self._runner = asyncio.Runner()
        self._providers = Providers({})

    def run(self, reference: Reference, names: Sequence[str], log: LogSettings) -> None:
        """Serve until the worker closes the pipe, or interrupts a handler."""
        for number in (signal.SIGTERM, signal.SIGINT):  # a handler of Python is not inherited
            signal.signal(number, self._on_signal)
        with suppress(Interrupted):
            try:
                app = self._load(reference, names)
                log.apply(self.send)
                with self._lifespans(app):
                    threading.Thread(target=self._receive, daemon=True).start()
                    self.send(Ready(resident_bytes()))
                    while (received := self._calls.get()) is not None:
                        outcome = copy_context().run(self._outcome, *received)
                        self._context = None
                        self.send(outcome)
            except Exception as error:  # noqa: BLE001 - the worker raises it
                self.send(raised(error))

    def send(self, frame: NamedTuple) -> None:
        """Send a frame to the worker; `_receive` detects a worker that has died."""
        with self._sending, suppress(BrokenPipeError):
            self._connection.send(frame)

    def _load(self, reference: Reference, names: Sequence[str]) -> App:
        module, attribute = reference
        app: App = getattr(importlib.import_module(module), attribute)
        for name in names:
            if name not in app.tasks:
                raise InvalidTask(
                    f"{module} does not declare the task {name} when it is imported again; declare "
                    f"tasks at module level"
                )
            self._tasks[name] = app.tasks[name]
        return app

    @contextmanager
    def _lifespans(self, app: App) -> Iterator[None]:
        """Run the lifespans of the app around the tasks of this process."""
        stack = AsyncExitStack()

        async def enter() -> None:
            for lifespan in app.lifespans:
                await stack.enter_async_context(asynccontextmanager(lifespan)(app))
            stack.push_async_callback(app.clients.close_here)
            stack.push_async_callback(self._providers.close)

        with self._runner:
            self._runner.run(enter())
            try:
                yield
            finally:
                self._runner.run(stack.aclose())
                app.clients.close()

    # -------------------------------------------------------------------------- main thread

    def _outcome(self, call: Call, context: ChildContext) -> Returned | Raised:
        task = self._tasks[call.name]
        try:
            context.enter()
            arguments = task.decode(context.task.message.spec)
            with self._dependencies(task, context) as provided:
                first = (context,) if task.signature.wants_context else ()
                function = partial(task.signature.function, *first, **arguments, **provided)
                value = self._called(function)
            result = task.payloads.encode_result(value)
        except BaseException as error:
            if self._is_own_end(error):
                raise
            return raised(error, task.fatal)
        return Returned(result, context.plans, resident_bytes())

    def _called(self, function: Callable[[], object]) -> object:
        """Call a handler; dependencies see an ordinary exception."""
        try:
            return function()
        except BaseException as error:
            if self._is_own_end(error):
                raise
            raise ordinary(error)  # noqa: B904 - the cause is set

    def _is_own_end(self, error: BaseException) -> bool:
        """Return whether the worker has asked for this end of the handler."""
        return self._is_ending and isinstance(error, Interrupted)

    @contextmanager
    def _dependencies(
        self, task: TaskFunction[..., Any], context: Context
    ) -> Iterator[dict[str, Any]]:
        if not task.signature.dependencies:
            yield {}
            return
        stack = AsyncExitStack()
        resolving = self._providers.resolve(task.signature.dependencies, context, stack)
        found = self._runner.run(resolving, context=copy_context())
        try:
            yield found
        except BaseException as error:
            exited = stack.__aexit__(type(error), error, error.__traceback__)
            if not self._runner.run(exited):
                raise
        else:
            self._runner.run(stack.aclose())

    def _on_signal(self, _number: int, _frame: object) -> None:
        """Ignore signals from outside, because the worker closes the pipe after its drain."""
        if self._is_interrupted:
            self._is_interrupted = False
            raise Interrupted

    # ------------------------------------------------------------------------ reader thread

    def _receive(self) -> None:
        """Receive frames from the worker; interrupt the handler if the worker has died."""
        grace_seconds = ORPHAN_SECONDS_MAX
        with suppress(EOFError, OSError):
            while not isinstance(frame := self._connection.recv(), Interrupt):
                if isinstance(frame, Call):
                    self._context = ChildContext(frame, self.send)
                    self._calls.put((frame, self._context))
                elif isinstance(frame, Notice) and self._context is not None:
                    self._context.noticed(frame.flag)
            grace_seconds = frame.grace_seconds
        if self._context is not None:
            self._interrupt(grace_seconds)
        self._calls.put(None)

    def _interrupt(self, grace_seconds: float) -> None:
        self._is_ending = self._is_interrupted = True
        ending = threading.Timer(grace_seconds, os._exit, (1,))
        ending.daemon = True
        ending.start()
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, INTERRUPT)


def main(
    connection: Connection, reference: Reference, names: Sequence[str], log: LogSettings
) -> None:
    """Run the process; the worker calls this by `multiprocessing`."""
    os.setpgid(0, 0)  # the worker can end this process together with the programs that it started
    Child(connection).run(reference, names, log)


def reference_of(app: App) -> Reference:
    """Return a module that has the app as a global.

    Raises:
        InvalidTask: no module has the app as a global, so a process could not import the app.
    """
    # A program that imports the app from a module has it as a global too. Processes import the
    # module, because they have no `__main__` of a package that was started with `python -m`.
    modules = sorted(sys.modules.items(), key=lambda item: item[0] in ("__main__", "__mp_main__"))
    for name, module in modules:
        for attribute, value in list(vars(module).items()):
            if value is app:
                return name, attribute
    raise InvalidTask(
        f"the app {app.name} is no global of an imported module, so processes cannot import it; "
        f"create it at module level, as in: app = App({app.name!r})"
    )


def raised(error: BaseException, fatal: tuple[type[Exception], ...] = ()) -> Raised:
    """Return a failure as a frame; an exception that cannot be sent is replaced."""
    text = "".join(traceback.format_exception(error)).rstrip()
    sent = ordinary(error)
    if isinstance(sent, HandlerError):
        sent = HandlerError(sent.kind, sent.text, is_fatal=is_fatal(sent, fatal))
    elif not _can_be_sent(sent):
        sent = handler_error(sent, is_fatal=is_fatal(sent, fatal))
    return Raised(sent, text, resident_bytes())


def _can_be_sent(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)  # noqa: S301 - our own
    except BaseException:  # noqa: BLE001 - the exception has code of the user
        return False


def resident_bytes() -> int:
    """Return the memory of this process: resident on Linux, else the maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()
