"""Translate the outcome of a handler into a settlement."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from taskraft import _settlement
from taskraft._handler_error import HandlerError
from taskraft._settlement import Settlement
from taskraft.v1 import task_service_pb2
from taskraft.worker.errors import (
    CancelRequested,
    DecodeError,
    InvalidResult,
    LeaseLost,
    NotBegun,
    RejectTask,
    RetryTask,
    Snooze,
    TimeLimitExceeded,
    WorkerStopping,
)
from taskraft.worker.task import TaskFunction

NOT_BEGUN_DELAY_SECONDS: Final = 5.0
"""Delay of a task whose handler could not be called, so that another worker can take it."""


class EncodedResult(NamedTuple):
    """A result that the process of the handler has encoded."""

    data: bytes


def acknowledgement(
    task: TaskFunction[..., object], value: object, *, keep_ms_min: int = 0
) -> Settlement:
    """Return the acknowledgement with the result; raise InvalidResult for a wrong result."""
    keep_ms = max(task.keep_ms, keep_ms_min)
    if value is None and not keep_ms:
        return _settlement.PLAIN_ACK
    ack = task_service_pb2.Settlement.Ack()
    if isinstance(value, EncodedResult):
        ack.result = value.data
        ack.result_content_type = task.payloads.codec.content_type
    elif value is not None or task.signature.returns is not None:
        ack.result = task.payloads.encode_result(value)
        ack.result_content_type = task.payloads.codec.content_type
    if keep_ms:
        ack.keep = task_service_pb2.Settlement.Ack.ZOMBIE
        ack.retain_ms = keep_ms
    return task_service_pb2.Settlement(ack=ack)


def settlement_of(failure: Exception, fatal: tuple[type[Exception], ...]) -> Settlement:
    """Return the settlement of a failed attempt; the server sets the time of the next attempt."""
    match failure:
        case RetryTask():
            return _settlement.release(failure.delay, reason=failure)
        case Snooze():
            return _settlement.release(failure.delay, uncounted=True)
        case WorkerStopping():
            return _settlement.release(0, uncounted=True)
        case NotBegun():
            return _settlement.release(NOT_BEGUN_DELAY_SECONDS, uncounted=True)
        case RejectTask() | DecodeError() | InvalidResult():
            return _settlement.reject(failure)
        case CancelRequested():
            return _settlement.release(reason="cancelled")
        case _ if is_fatal(failure, fatal):
            return _settlement.reject(failure)
        case _:
            return _settlement.release(reason=failure)


def outcome_of(failure: Exception | None, fatal: tuple[type[Exception], ...]) -> str:
    """Return the outcome of an attempt for metrics."""
    match failure:
        case None:
            return "acked"
        case Snooze():
            return "snoozed"
        case WorkerStopping() | NotBegun():
            return "handed_back"
        case LeaseLost():
            return "lost"
        case RejectTask() | DecodeError() | InvalidResult():
            return "rejected"
        case _:
            return "rejected" if is_fatal(failure, fatal) else "released"


def is_fatal(failure: Exception, fatal: tuple[type[Exception], ...]) -> bool:
    """Return whether an exception, or the exception that a HandlerError replaces, is in `fatal`."""
    if isinstance(failure, HandlerError):
        return failure.is_fatal or isinstance(failure.__cause__, fatal)
    return isinstance(failure, fatal)


def log_failure(
    log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    failure: Exception,
    attempt: int,
) -> None:
    """Log the cause of the end of an attempt; log a traceback only for an unexpected exception."""
    match failure:
        case Snooze() | WorkerStopping() | NotBegun() | CancelRequested() | LeaseLost():
            log.info("handed back: %s", failure)
        case RetryTask() | RejectTask() | TimeLimitExceeded():
            log.warning("failed at attempt %d: %s", attempt, failure)
        case _:
            log.warning("failed at attempt %d", attempt, exc_info=failure)
