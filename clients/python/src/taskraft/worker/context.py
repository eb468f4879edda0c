"""Describe the task of a handler to the handler, and ask the handler to end."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from taskraft._clock import monotonic
from taskraft.worker.errors import (
    CancelRequested,
    LeaseLost,
    TaskFailed,
    TaskInterrupted,
)
from taskraft.worker.handle import PROCESSED, Result
from taskraft.worker.spans import trace_fields
from taskraft.worker.steps import Step

if TYPE_CHECKING:
    from taskraft import AsyncClient, PlannedTask, Task
    from taskraft._async_taken_task import AsyncTakenTask

log = logging.getLogger("taskraft.worker")

T = TypeVar("T")

PROGRESS_SECONDS_MIN: Final = 1.0
"""Minimum time between two reports of progress; a report is an entry in the replicated log."""

_current: Final[ContextVar[Context]] = ContextVar("taskraft_worker_context")


class Context(ABC):
    """The task of a handler; the first parameter of a handler may have this type.

    All methods may be called from the handler's thread.
    """

    __slots__ = ("_log", "deadline", "earlier", "interruption", "is_stopping", "plans", "task")

    def __init__(self, task: Task, deadline: float | None) -> None:
        """Store the task; `deadline` is the end of the time limit by `time.monotonic`."""
        self.task: Final = task
        """The task as the server delivered it."""
        self.deadline = deadline
        """End of the time limit by `time.monotonic`; None: no limit, or the handler has not begun.
        The time for which a handler waits for a process does not count."""
        self.interruption: TaskInterrupted | None = None
        """Exception with which the handler must end; None while the handler may go on."""
        self.is_stopping = False
        """True after the worker was asked to stop. The handler may finish within the grace."""
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self.plans: Final[list[PlannedTask]] = []
        self.earlier: Sequence[Step] = ()

    @classmethod
    def current(cls) -> Context:
        """Return the context of the running handler.

        Raises:
            LookupError: no handler runs here.
        """
        return _current.get()

    def enter(self) -> Self:
        """Make this the current context, for the rest of the caller's own contextvars context."""
        _current.set(self)
        return self

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger whose lines name the task."""
        if self._log is None:
            self._log = _TaskLog(log, self)
        return self._log

    @property
    def tasks(self) -> Sequence[Task]:
        """All tasks of a batch handler; else the one task."""
        return (self.task,)

    @property
    def log_fields(self) -> Mapping[str, object]:
        """Fields of log records inside the handler; trace and span only if tracing is on."""
        task = self.task
        return {
            "task": str(task),
            "type": task.message.spec.type,
            "attempt": task.attempt,
            "tube": task.tube,
            "token": task.token,
            **trace_fields(),
        }

    @property
    @abstractmethod
    def client(self) -> AsyncClient:
        """The client of the worker, for coroutines on the worker's event loop.

        Raises:
            RuntimeError: the handler runs in a process of its own.
        """

    @property
    @abstractmethod
    def is_cancel_requested(self) -> bool:
        """True if someone has cancelled the task."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """True if the lease is known to have ended, so that the result will be dropped."""

    @property
    def token(self) -> int:
        """Lease token; it grows with every take, so it can fence writes to other systems."""
        return self.task.token

    @property
    def attempt(self) -> int:
        """Number of takes of the task, this take included."""
        return self.task.attempt

    @property
    def attempts_max(self) -> int | None:
        """Maximum number of failed attempts by the retry policy of the task.

        None: the task has no policy of its own, so the policy of the tube decides.
        """
        spec = self.task.message.spec
        return spec.retry.attempts_max if spec.HasField("retry") else None

    def check(self) -> None:
        """Raise if the handler must end.

        Raises:
            CancelRequested: someone has cancelled the task.
            LeaseLost: the lease has ended.
            TimeLimitExceeded: the time limit is over.
            WorkerStopping: the worker stops, and its grace is over.
        """
        if self.is_lost:
            raise LeaseLost(f"the lease of {self.task} has ended")
        if self.interruption is not None:
            raise self.interruption
        if self.is_cancel_requested:
            raise CancelRequested(f"{self.task} was cancelled")

    def progress(self, share: float, note: str = "") -> None:
        """Report progress from 0 to 1, with a short status for people.

        Reports are sent at most once a second; of several reports within a second, the last one is
        sent. The report of a task that ends within this second is not sent.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share!r}")
        self._report(share, note)

    def previous(self, kind: type[T]) -> T:
        """Return the result of the step before this one, in a chain.

        Args:
            kind: type of the result, which is checked.

        Raises:
            LookupError: the task waited for no other task, or for several ones.
            TaskFailed: the step before has failed or its result is gone.
            DecodeError: the result is not of this type.
        """
        if len(self.earlier) != 1:
            raise LookupError(
                f"{self.task} has {len(self.earlier)} steps before it, not one; put it as a step "
                f"of a chain(), or read Context.results() after a group()"
            )
        found = self.earlier[0].result(kind)
        if found.outcome != PROCESSED:
            raise TaskFailed(
                f"the step before {self.task} ended as {found.outcome}: {found.failure}"
            )
        return found.value  # type: ignore[return-value]  # decoded as this type

    def results(self, kind: type[T]) -> list[Result[T]]:
        """Return the outcomes of the tasks on which this task depends, in order.

        Args:
            kind: type of the results, which is checked.

        Raises:
            DecodeError: a result is not of this type.
        """
        return [step.result(kind) for step in self.earlier]

    def put_on_success(self, *plans: PlannedTask) -> None:
        """Put tasks together with the acknowledgement of this task: all of it or nothing.

        Nothing is put if the handler fails.
        """
        self.plans.extend(plans)

    @abstractmethod
    def _report(self, share: float, note: str) -> None:
        """Send progress to the server, soon."""


class WorkerContext(Context):
    """The context of a handler in the process of the worker."""

    __slots__ = ("_client", "_latest", "_loop", "_progress_due", "_taken")

    def __init__(self, taken: AsyncTakenTask, client: AsyncClient) -> None:
        super().__init__(taken, None)
        self._taken = taken
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._latest: tuple[float, str] | None = None
        self._progress_due = 0.0

    @property
    def client(self) -> AsyncClient:
        """The client of the worker."""
        return self._client

    @property
    def is_cancel_requested(self) -> bool:
        """True if someone has cancelled the task."""
        return self._taken.is_cancel_requested

    @property
    def is_lost(self) -> bool:
        """True if the lease is known to have ended."""
        return self._taken.is_lost

    def _report(self, share: float, note: str) -> None:
        self._loop.call_soon_threadsafe(self._schedule_progress, share, note)

    def _schedule_progress(self, share: float, note: str) -> None:
        is_scheduled = self._latest is not None
        self._latest = (share, note)
        if not is_scheduled:
            pause = max(self._progress_due - monotonic(), 0.0)
            self._loop.call_later(pause, self._send_progress)

    def _send_progress(self) -> None:
        assert self._latest is not None
        (share, note), self._latest = self._latest, None
        if self._taken.is_settled or self._taken.is_lost:
            return
        self._progress_due = monotonic() + PROGRESS_SECONDS_MIN
        sending = self._loop.create_task(self._taken.touch(progress=share, note=note))
        sending.add_done_callback(_log_failed_progress)


class BatchContext(WorkerContext):
    """The context of a batch handler; `task`, `token` and `attempt` are those of the first task."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: Sequence[AsyncTakenTask], client: AsyncClient) -> None:
        super().__init__(tasks[0], client)
        self._tasks = tasks

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of the batch."""
        return self._tasks

    @property
    def is_cancel_requested(self) -> bool:
        """True if someone has cancelled all tasks of the batch."""
        return all(task.is_cancel_requested for task in self._tasks)

    @property
    def is_lost(self) -> bool:
        """True if all leases of the batch are known to have ended."""
        return all(task.is_lost for task in self._tasks)

    def progress(self, share: float, note: str = "") -> None:
        """Raise RuntimeError, because a batch handler cannot report progress."""
        raise RuntimeError("a batch handler cannot report progress: its tasks end together")

    def put_on_success(self, *plans: PlannedTask) -> None:
        """Raise RuntimeError, because a batch handler cannot put on success."""
        raise RuntimeError("a batch handler cannot put on success; use `app.aput_many` instead")


def _log_failed_progress(sending: asyncio.Task[None]) -> None:
    if not sending.cancelled() and (error := sending.exception()) is not None:
        log.debug("progress was not reported: %s", error)


class _TaskLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the task to each line, as text and as fields."""

    def __init__(self, logger: logging.Logger, context: Context) -> None:
        self._context = context
        super().__init__(logger)

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Prefix a log message with the task, and add the fields of the task."""
        kwargs["extra"] = {**self._context.log_fields, **kwargs.get("extra", {})}
        return f"{self._context.task}: {msg}", kwargs


class TaskLogFilter(logging.Filter):
    """Adds the fields of the running handler's task to all log records, for any logger.

    Add it to a handler of the logging module; `taskraft worker` does so.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to a record, and let it pass."""
        context = _current.get(None)
        if context is not None and not hasattr(record, "task"):
            record.__dict__.update(context.log_fields)
        return True
