"""What is refused whatever is there: bad input, limits, access, and what a server cannot do."""

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
    """What is wrong with it."""


class InvalidError(TaskraftError):
    """Tell that the request itself is wrong; sending it again cannot help."""

    code = "INVALID_ARGUMENT"


class InvalidField(InvalidError):
    """Tell that fields are missing, malformed or out of range; `violations` lists all of them."""

    reason = "INVALID_FIELD"
    violations: Sequence[Violation] = ()


class PayloadTooLarge(InvalidError):
    """Tell that a payload, the headers or the whole message is larger than allowed."""

    reason = "PAYLOAD_TOO_LARGE"


class LimitError(TaskraftError):
    """Tell that the cluster holds as much as it may."""

    code = "RESOURCE_EXHAUSTED"


class LimitReached(LimitError):
    """Tell that the cluster has as many tubes, sessions, groups or schedules as it may."""

    reason = "LIMIT_REACHED"


class DiskLow(LimitError):
    """Tell that the disk is below its low-water mark: puts are refused, acks still work."""

    reason = "DISK_LOW"


class CursorTrimmed(TaskraftError):
    """Tell that the position was trimmed by retention; metadata ``low`` names the oldest left."""

    reason = "CURSOR_TRIMMED"
    code = "OUT_OF_RANGE"


class NotSupported(TaskraftError):
    """Tell that this server does not implement this part of the contract yet."""

    reason = "NOT_IMPLEMENTED"
    code = "UNIMPLEMENTED"


class AccessError(TaskraftError):
    """Tell that the caller was not let in."""

    code = "PERMISSION_DENIED"


class NoCredentials(AccessError):
    """Tell that there were no, or no valid, credentials."""

    reason = "NO_CREDENTIALS"
    code = "UNAUTHENTICATED"


class NotAllowed(AccessError):
    """Tell that the caller may not do this."""

    reason = "NOT_ALLOWED"


class InternalError(TaskraftError):
    """Tell that the server has a defect."""

    reason = "INTERNAL_ERROR"
    code = "INTERNAL"
