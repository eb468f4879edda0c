"""Translate refusals of the service into the error classes of the traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

import grpc
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import error_pb2, task_pb2

STATUS_KEY: Final = "grpc-status-details-bin"

Reason = error_pb2.Error

Answer = TypeVar("Answer", bound="ItemAnswer")

NOT_FOUND: Final = "NOT_FOUND"
NOT_TAKEN: Final = "NOT_TAKEN_BY_YOU"
TUBE_NOT_FOUND: Final = "TUBE_NOT_FOUND"
UNKNOWN_TUBE_TYPE: Final = "UNKNOWN_TUBE_TYPE"
HAS_TAKEN: Final = "TUBE_HAS_TAKEN_TASKS"
HAS_WAITERS: Final = "TUBE_HAS_WAITERS"
INVALID: Final = "INVALID_ARGUMENT"
UNSUPPORTED: Final = "UNSUPPORTED"
MALFORMED_SESSION: Final = "INVALID_SESSION_ID"
UNKNOWN_SESSION: Final = "UNKNOWN_SESSION"
INVALID_CONFIG: Final = "INVALID_CONFIG"
TEMPORARY: Final = "TEMPORARY_NOT_ALLOWED"
NOT_RUNNING: Final = "NOT_RUNNING"
CLOSED: Final = "CONNECTION_CLOSED"
INTERNAL: Final = "INTERNAL"

_CLASSES: Final[Mapping[str, str]] = {
    "TUBE_NOT_FOUND": TUBE_NOT_FOUND,
    "TASK_NOT_FOUND": NOT_FOUND,
    "LEASE_STALE": NOT_TAKEN,
    "SESSION_NOT_FOUND": UNKNOWN_SESSION,
    "TUBE_EXISTS": "TUBE_EXISTS",
    "DRIVER_MISSING": UNKNOWN_TUBE_TYPE,
    "KIND_UNSUITABLE": UNSUPPORTED,
    "INVALID_FIELD": INVALID,
    "NO_LEADER": NOT_RUNNING,
    "NOT_LEADER": NOT_RUNNING,
    "COMMIT_UNKNOWN": NOT_RUNNING,
    "UNAVAILABLE": NOT_RUNNING,
    "DEADLINE_EXCEEDED": NOT_RUNNING,
    "CANCELLED": CLOSED,
}
TUBE_FULL: Final = "TUBE_FULL"


class Refused(Exception):
    """A refused operation: ``error`` is the class in traces, ``reason`` the service's reason."""

    def __init__(self, error: str, reason: str = "", text: str = "") -> None:
        super().__init__(f"{error} {reason} {text}".strip())
        self.error = error
        self.reason = reason


class ItemAnswer(Protocol):
    """The answer to a request with several items."""

    @property
    def errors(self) -> Iterable[task_pb2.ItemError]:
        """The errors of the refused items."""
        ...


def refused_call(error: grpc.RpcError) -> Refused:
    """Convert a failed call to a refusal."""
    reason, metadata = error.code().name, {}
    for key, packed in error.trailing_metadata() or ():
        if key == STATUS_KEY:
            for detail in status_pb2.Status.FromString(packed).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    reason, metadata = info.reason, dict(info.metadata)
    return refused_as(reason, metadata, error.details() or "")


def refused_item(error: error_pb2.Error) -> Refused:
    """Convert a refused item to a refusal."""
    return refused_as(Reason.Reason.Name(error.reason), dict(error.metadata), error.message)


def whole_answer(answer: Answer) -> Answer:
    """Return an answer in which no item is refused.

    Raises:
        Refused: the first refused item.
    """
    for item in answer.errors:
        raise refused_item(item.error)
    return answer


def refused_as(reason: str, metadata: Mapping[str, str], text: str) -> Refused:
    """Return the refusal of a reason; a reason that no trace has is its own error class."""
    if reason == "TUBE_BUSY":
        return Refused(HAS_WAITERS if "waiting" in metadata else HAS_TAKEN, reason, text)
    return Refused(_CLASSES.get(reason, INTERNAL), reason, text)
