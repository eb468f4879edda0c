"""Run a handler while a time limit, a cancellation or the end of the worker may interrupt it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from taskraft import AsyncClient, Task
from taskraft._clock import monotonic
from taskraft._deadlines import Deadlines
from taskraft._guarded_call import guarded
from taskraft._handler_error import handler_error, ordinary
from taskraft._handler_slots import bind_wait_hooks
from taskraft.worker.context import WorkerContext
from taskraft.worker.dependencies import Providers
from taskraft.worker.errors import (
    CancelRequested,
    LeaseLost,
    NotBegun,
    TaskInterrupted,
    TimeLimitExceeded,
    WorkerStopping,
)
from taskraft.worker.middleware import Middleware, around_run
from taskraft.worker.process_pool import ProcessPool
from taskraft.worker.slots import AttemptSlot
from taskraft.worker.task import TaskFunction
from taskraft.worker.thread_pool import ThreadCall, ThreadPool

Value = TypeVar("Value")


class Observer(Protocol):
    """Counts and times attempts."""

    def started(self, task: Task, waited_seconds: float) -> None:
        """Note the start of an attempt, and the time for which its task was READY."""
        ...

    def ended(self, kind: str, outcome: str, seconds: float) -> None:
        """Note the end of an attempt: type of the task, outcome, and time of the attempt."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Objects that all attempts of a worker share."""

    client: AsyncClient
    providers: Providers
    middleware: Sequence[Middleware]
    threads: ThreadPool
    processes: ProcessPool | None
    time_limits: Deadlines[HandlerRun]
    """Ends of the time limits of the running handlers."""
    cancel_grace_seconds: float
    on_stuck_thread: Callable[[ThreadCall], None]
    """Called when an attempt ends while its thread still runs."""
    observer: Observer | None = None
    """Notified of the start and the end of each attempt."""
    is_worker_cancelled: Callable[[], bool] = bool
    """Returns whether the asyncio task of the worker is being cancelled."""


class HandlerRun(ABC):
    """One call of a handler, for one task or for a batch."""

    def __init__(
        self, task: TaskFunction[..., Any], context: WorkerContext, surroundings: Surroundings
    ) -> None:
        self._task = task
        self._around = surroundings
        self.context: Final = context
        """The context that the handler sees."""
        self.thread: ThreadCall | None = None
        """The call in a thread, from its start on."""
        self._running: asyncio.Task[Any] | None = None
        self._waits_for_process = False

    def interrupt(self, cause: TaskInterrupted) -> None:
        """Ask the handler to end: cancel a coroutine; a thread sees it in `Context.check`."""
        if self.context.interruption is not None:
            return
        self.context.interruption = cause
        if self._running is not None:
            self._running.cancel()

    def note_stopping(self) -> None:
        """Tell the handler that the worker was asked to stop."""
        self.context.is_stopping = True

    @abstractmethod
    async def run(self, slot: AttemptSlot) -> None:
        """Call the handler in the slot, and settle its tasks; failures are logged, not raised."""

    async def interruptible(self, call: Callable[[], Awaitable[Value]]) -> Value:
        """Await a call; raise `Context.interruption` if it was interrupted.

        Raises:
            asyncio.CancelledError: the lease was lost.
            WorkerStopping: the worker itself is cancelled.
            Exception: the failure of the call.
        """
        if self.context.interruption is not None:  # before the handler was called
            raise self.context.interruption
        self._running = asyncio.current_task()
        try:
            return await self.guarded(call)
        except asyncio.CancelledError:
            if self.context.is_lost:
                raise
            if self.context.interruption is None:
                self.context.interruption = WorkerStopping("the worker was cancelled")
            raise self.context.interruption from None
        finally:
            self._running = None
            self._around.time_limits.discard(self)

    def begin(self) -> None:
        """Start the time limit: code of the app runs from now on."""
        if self._task.time_limit is not None:
            self._set_deadline(monotonic() + self._task.time_limit)

    @contextmanager
    def waiting_for_process(self) -> Iterator[None]:
        """Stop the time limit in a block in which the handler waits for a process."""
        self._waits_for_process = True
        self._around.time_limits.discard(self)
        started = monotonic()
        yield
        self._waits_for_process = False
        if self.context.deadline is not None:
            self._set_deadline(self.context.deadline + monotonic() - started)

    def _set_deadline(self, deadline: float) -> None:
        self.context.deadline = deadline
        self._around.time_limits.add(self, deadline)

    def time_limit_passed(self) -> None:
        """Ask the handler to end, because its time limit is over."""
        limit = f"the time limit of {self._task.time_limit:g} s is over"
        self.interrupt(TimeLimitExceeded(limit))

    async def guarded(self, call: Callable[[], Awaitable[Value]]) -> Value:
        """Await code of the app, and raise its failure as an ordinary exception.

        Raises:
            asyncio.CancelledError: the worker has cancelled the call.
            Exception: the failure, or a HandlerError if it cannot be passed on.
        """
        try:
            return await guarded(call, self._is_cancelled)
        except TaskInterrupted as error:
            raise self.failure_of(error)  # noqa: B904 - the error itself, or its cause is set

    def failure_of(self, error: BaseException) -> Exception:
        """Return what code of the app has raised, as an ordinary exception.

        An exception that stands for a request of the worker is an ordinary failure if the worker
        has not made the request.
        """
        context = self.context
        match error:
            case WorkerStopping():
                is_asked = isinstance(context.interruption, WorkerStopping)
            case LeaseLost():
                is_asked = context.is_lost
            case CancelRequested():
                is_asked = context.is_cancel_requested
            case NotBegun():
                is_asked = self._waits_for_process
            case _:
                return ordinary(error)
        return error if is_asked else handler_error(error)

    def _is_cancelled(self) -> bool:
        """Return whether the worker has cancelled the call; its flags are set before it cancels."""
        context = self.context
        is_asked = context.is_lost or context.interruption is not None
        return is_asked or self._around.is_worker_cancelled()

    async def called_with(self, /, *items: object, **arguments: object) -> object:
        """Call the handler inside the middleware, with its context and its dependencies."""
        dependencies = self._task.signature.dependencies
        if not dependencies:
            return await self._inside_middleware(items, arguments)
        async with AsyncExitStack() as stack:
            provided = await self._around.providers.resolve(dependencies, self.context, stack)
            return await self._inside_middleware(items, arguments | provided)

    def _inside_middleware(
        self, items: Sequence[object], arguments: Mapping[str, object]
    ) -> Awaitable[object]:
        signature = self._task.signature
        first = (self.context,) if signature.wants_context else ()
        call = partial(signature.function, *first, *items, **arguments)
        innermost = partial(self.in_coroutine if signature.is_async else self.in_thread, call)
        return around_run(self._around.middleware, self.context, innermost)()

    async def in_coroutine(self, call: Callable[[], Awaitable[object]]) -> object:
        """Call a coroutine function; dependencies and middlewares see an ordinary exception.

        Raises:
            asyncio.CancelledError: the worker, a middleware or the handler itself asked for it.
            Exception: the failure of the handler.
        """
        try:
            return await call()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - code of the app
            raise ordinary(error)  # noqa: B904 - the cause is set

    async def in_thread(self, call: Callable[[], object]) -> object:
        """Call a function in a thread, which goes on if this coroutine is cancelled."""
        inside = copy_context()
        inside.run(bind_wait_hooks)
        self.thread = self._around.threads.start(call, inside)
        try:
            return await self.thread.future
        except asyncio.CancelledError:
            if not self.thread.is_done:
                self._around.on_stuck_thread(self.thread)
            raise


def ready_seconds(task: Task) -> float:
    """Return the seconds for which a taken task was READY or DELAYED since its put."""
    return (task.message.since_ms - task.message.created_ms) / 1_000
