"""Exceptions of the worker framework: control flow of handlers, and outcomes of awaited tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskraft._durations import Duration


class WorkerError(Exception):
    """Base class of the exceptions that this package raises."""


class InvalidTask(WorkerError, TypeError):
    """A decorated function, a tube or their options cannot be used; raised at import."""


class EncodeError(WorkerError, TypeError):
    """An argument or a result does not have the type that the signature states."""


class InvalidResult(EncodeError):
    """The result of a handler can never be stored.

    The result has more than 1 MiB, or not the type that the signature states. A worker rejects the
    task without further attempts.
    """


class DecodeError(WorkerError, ValueError):
    """A payload or a result does not have the form that the signature states.

    A worker rejects a task with such a payload without further attempts.
    """


# --------------------------------------------------------------------- raised by handlers


class RetryTask(WorkerError):
    """Raised by a handler: the attempt has failed and counts; try again after `delay`."""

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        """Store the delay, default: the retry policy decides, and a reason for people."""
        super().__init__(reason or "the handler asked for another attempt")
        self.delay = delay

    def __reduce__(self) -> tuple[type[RetryTask], tuple[Duration | None, str]]:
        return type(self), (self.delay, str(self))


class Snooze(WorkerError):
    """Raised by a handler: hand the task back for `delay`; the attempt does not count."""

    def __init__(self, delay: Duration) -> None:
        """Store the delay after which the task is READY again."""
        super().__init__("the handler postponed the task")
        self.delay = delay

    def __reduce__(self) -> tuple[type[Snooze], tuple[Duration]]:
        return type(self), (self.delay,)


class RejectTask(WorkerError):
    """Raised by a handler: end the task as failed, without further attempts."""

    def __init__(self, reason: str = "") -> None:
        """Store a reason for people."""
        super().__init__(reason or "the handler rejected the task")


class BatchError(WorkerError):
    """Raised by a batch handler: some tasks of the batch have failed, and the others succeeded."""

    def __init__(
        self, failures: Mapping[int, Exception], results: Sequence[object] | None = None
    ) -> None:
        """Store the failures.

        Args:
            failures: exception by position of the task in the batch; each one settles its task as
                if a handler of one task had raised it.
            results: results by position; those of failed tasks are ignored. None: no results.
        """
        super().__init__(f"{len(failures)} tasks of the batch have failed")
        self.failures: Final = dict(failures)
        self.results: Final = results


# ------------------------------------------------------------- raised inside handlers


class TaskInterrupted(WorkerError):
    """Base class of the exceptions of `Context.check`: the handler is asked to end."""


class CancelRequested(TaskInterrupted):
    """Someone has cancelled the task."""


class LeaseLost(TaskInterrupted):
    """The lease has ended; another worker may run the task, and the result will be dropped."""


class TimeLimitExceeded(TaskInterrupted):
    """The attempt has run for longer than the time limit of the task.

    The attempt counts as failed.
    """


class WorkerStopping(TaskInterrupted):
    """The worker stops; the task is handed back, and the attempt does not count."""


class NotBegun(TaskInterrupted):
    """The handler could not be called; the task is handed back, and the attempt does not count."""


# ------------------------------------------------------ failures of the process pool


class WorkerLost(WorkerError):
    """The process of the handler has died, for example of a lack of memory.

    The attempt counts as failed. Tasks of other processes continue.
    """


# ----------------------------------------------------------- raised by Handle.result


class TaskNotProcessed(WorkerError):
    """Base class of the outcomes of an awaited task that has no result."""


class TaskFailed(TaskNotProcessed):
    """The task was buried, rejected or removed after its last attempt, or a dependency failed."""


class TaskCancelled(TaskNotProcessed):
    """The task was cancelled or deleted."""


class TaskExpired(TaskNotProcessed):
    """The time to live of the task ended before the task was processed."""


class ResultNotKept(TaskNotProcessed):
    """The task does not exist any more: it ended, and its result was not kept for long enough."""
