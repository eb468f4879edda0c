"""Errors that a retry of the same request cannot solve: input, limits, access, missing features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskraft.errors._taskraft_error import TaskraftError


@dataclass(frozen=True, slots=True)
class Violation:
    """One field of a request that is missing, malformed or out of range."""

    field: str
    """Path of the field, for example ``tasks[3].ttl_ms``."""
    description: str
    """Description of the fault."""


class InvalidError(TaskraftError):
    """The request itself is invalid."""

    code = "INVALID_ARGUMENT"


class InvalidField(InvalidError):
    """Fields are missing, malformed or out of range; `violations` lists them."""

    reason = "INVALID_FIELD"
    violations: Sequence[Violation] = ()


class PayloadTooLarge(InvalidError):
    """A payload, the headers or the whole message exceeds its size limit."""

    reason = "PAYLOAD_TOO_LARGE"


class TooManySteps(InvalidError):
    """The request needs more steps, or names tasks with more content, than one request may."""

    reason = "TOO_MANY_STEPS"


class LimitError(TaskraftError):
    """The cluster has reached a limit."""

    code = "RESOURCE_EXHAUSTED"


class LimitReached(LimitError):
    """The cluster or the principal has the maximum number of tubes, sessions or other objects."""

    reason = "LIMIT_REACHED"


class DiskLow(LimitError):
    """Free disk space is below the low-water mark: puts are refused, acks still work."""

    reason = "DISK_LOW"


class CursorTrimmed(TaskraftError):
    """Retention has removed the events at this position; ``low`` is the oldest position left."""

    reason = "CURSOR_TRIMMED"
    code = "OUT_OF_RANGE"


class NotSupported(TaskraftError):
    """The server does not implement this method or option."""

    reason = "NOT_IMPLEMENTED"
    code = "UNIMPLEMENTED"


class AccessError(TaskraftError):
    """The caller was refused access."""

    code = "PERMISSION_DENIED"


class NoCredentials(AccessError):
    """The request has no valid credentials."""

    reason = "NO_CREDENTIALS"
    code = "UNAUTHENTICATED"


class NotAllowed(AccessError):
    """The caller does not have the permission for this operation."""

    reason = "NOT_ALLOWED"


class InternalError(TaskraftError):
    """The server has a bug."""

    reason = "INTERNAL_ERROR"
    code = "INTERNAL"
