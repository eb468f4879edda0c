"""State every way in which an operation can fail, as one tree of exceptions.

    TaskraftError
    ├── RetryableError       waiting helps; the client already waited as long as it was allowed
    │   ├── NoLeader, NotLeader, Draining, NodeBehind, MembersChanging, Unavailable
    │   ├── CommitUnknown    the outcome is not known
    │   └── Overloaded, RateLimited, TubeFull, TubePaused
    ├── NotFoundError        TubeNotFound, TaskNotFound, SessionNotFound, ...
    ├── ConflictError        TubeExists, KeyTaken, LeaseStale, WrongState, ...
    ├── InvalidError         InvalidField, PayloadTooLarge
    ├── LimitError           LimitReached, DiskLow
    ├── AccessError          NoCredentials, NotAllowed
    ├── CursorTrimmed, NotSupported, InternalError
    └── of the client        DeadlinePassed, ItemsRefused, ClientClosed, ClientForked

What each means and what to do is in `taskraft.catalogue`. Neither module imports gRPC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TaskraftError(Exception):
    """Tell that an operation failed; the root of all exceptions of this package.

    Attributes:
        reason: Stable name for programs, one of the contract's or of the client's own.
        code: Name of the gRPC status code.
        metadata: The variables of the message by name.
        retry_ms: How long the server asks to wait before the next try; absent if it did not say.
    """

    reason: str = "UNKNOWN"
    code: str = "UNKNOWN"

    def __init__(
        self,
        message: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        retry_ms: int | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message or self.reason.replace("_", " ").lower())
        self.metadata: Mapping[str, str] = metadata or {}
        self.retry_ms = retry_ms
        if code is not None:
            self.code = code

    @property
    def message(self) -> str:
        """One sentence for people."""
        return str(self.args[0])


# ------------------------------------------------------------------------------------ waiting helps


class RetryableError(TaskraftError):
    """Tell that the same call may succeed later."""

    code = "UNAVAILABLE"


class Unavailable(RetryableError):
    """Tell that no node could be reached within the time allowed."""

    reason = "UNAVAILABLE"


class NoLeader(RetryableError):
    """Tell that the cluster has no leader at present."""

    reason = "NO_LEADER"


class NotLeader(RetryableError):
    """Tell that the node does not lead and could not forward."""

    reason = "NOT_LEADER"


class Draining(RetryableError):
    """Tell that the node is stopping."""

    reason = "DRAINING"


class NodeBehind(RetryableError):
    """Tell that the replica has not applied what was asked for in time."""

    reason = "NODE_BEHIND"


class MembersChanging(RetryableError):
    """Tell that an earlier change of the members is not finished."""

    reason = "MEMBERS_CHANGING"


class CommitUnknown(RetryableError):
    """Tell that the outcome is not known: the call may or may not have had its effect."""

    reason = "COMMIT_UNKNOWN"


class Overloaded(RetryableError):
    """Tell that the node has more requests in hand than it may."""

    reason = "OVERLOADED"
    code = "RESOURCE_EXHAUSTED"


class RateLimited(RetryableError):
    """Tell that a rate limit was reached."""

    reason = "RATE_LIMITED"
    code = "RESOURCE_EXHAUSTED"


class TubeFull(RetryableError):
    """Tell that the tube holds as many tasks or bytes as it may."""

    reason = "TUBE_FULL"
    code = "RESOURCE_EXHAUSTED"


class TubePaused(RetryableError):
    """Tell that an operator has paused the tube."""

    reason = "TUBE_PAUSED"


# ---------------------------------------------------------------------------------------- not found


class NotFoundError(TaskraftError):
    """Tell that something named in the call does not exist."""

    code = "NOT_FOUND"


class TubeNotFound(NotFoundError):
    """Tell that no tube has this name."""

    reason = "TUBE_NOT_FOUND"


class TaskNotFound(NotFoundError):
    """Tell that the tube has no task with this id or key, or not any more."""

    reason = "TASK_NOT_FOUND"


class SessionNotFound(NotFoundError):
    """Tell that the session was never opened, was closed, or has expired."""

    reason = "SESSION_NOT_FOUND"


class GroupNotFound(NotFoundError):
    """Tell that no group has this name."""

    reason = "GROUP_NOT_FOUND"


class ScheduleNotFound(NotFoundError):
    """Tell that no schedule has this name."""

    reason = "SCHEDULE_NOT_FOUND"


class MemberNotFound(NotFoundError):
    """Tell that no member of the cluster has this name or id."""

    reason = "MEMBER_NOT_FOUND"


class DependencyNotFound(NotFoundError):
    """Tell that a task which a new one depends on does not exist, or not any more."""

    reason = "DEPENDENCY_NOT_FOUND"


# ---------------------------------------------------------------------------------------- conflicts


class ConflictError(TaskraftError):
    """Tell that the call does not fit what is there."""

    code = "FAILED_PRECONDITION"


class TubeExists(ConflictError):
    """Tell that a tube of this name exists."""

    reason = "TUBE_EXISTS"
    code = "ALREADY_EXISTS"


class KeyTaken(ConflictError):
    """Tell that an unfinished task has this unique key."""

    reason = "KEY_TAKEN"
    code = "ALREADY_EXISTS"

    @property
    def task_id(self) -> int | None:
        """Id of the task that has the key, if the server said so."""
        text = self.metadata.get("task_id")
        return int(text) if text else None


class RequestIdReused(ConflictError):
    """Tell that the request_id was used before with another request."""

    reason = "REQUEST_ID_REUSED"
    code = "ALREADY_EXISTS"


class MemberExists(ConflictError):
    """Tell that the cluster has a member of this name, with another data directory."""

    reason = "MEMBER_EXISTS"
    code = "ALREADY_EXISTS"


class MemberNeeded(ConflictError):
    """Tell that the cluster could not go on after this change of its members."""

    reason = "MEMBER_NEEDED"


class GroupExists(ConflictError):
    """Tell that a group of this name exists."""

    reason = "GROUP_EXISTS"
    code = "ALREADY_EXISTS"


class ScheduleExists(ConflictError):
    """Tell that a schedule of this name exists."""

    reason = "SCHEDULE_EXISTS"
    code = "ALREADY_EXISTS"


class LeaseStale(ConflictError):
    """Tell that the lease is over: stop working on the task, and never retry."""

    reason = "LEASE_STALE"


class WrongState(ConflictError):
    """Tell that the task is in a state that does not allow this operation."""

    reason = "WRONG_STATE"

    @property
    def state(self) -> str:
        """Name of the state the task was found in; empty if the server did not say."""
        return self.metadata.get("state", "")


class TubeBusy(ConflictError):
    """Tell that the tube has taken tasks or waiting consumers."""

    reason = "TUBE_BUSY"


class KindUnsuitable(ConflictError):
    """Tell that tubes of this kind do not know the operation."""

    reason = "KIND_UNSUITABLE"


class DriverMissing(ConflictError):
    """Tell that the driver of this tube kind is not installed on the node."""

    reason = "DRIVER_MISSING"


class FeedMismatch(ConflictError):
    """Tell that the position belongs to another feed."""

    reason = "FEED_MISMATCH"


# ---------------------------------------------------------------------- bad input, limits, the rest


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


# ----------------------------------------------------------------------------- of the client itself


class DeadlinePassed(TaskraftError):
    """Tell that the time allowed for the call was over; a change may still take effect."""

    reason = "DEADLINE_PASSED"
    code = "DEADLINE_EXCEEDED"


class ItemsRefused(TaskraftError):
    """Tell that some items of a list were refused; all others have succeeded.

    Attributes:
        refused: Why, by position of the item in the list.
        task_ids: For puts: one id per item, 0 where it was refused.
    """

    reason = "ITEMS_REFUSED"

    def __init__(
        self, refused: Mapping[int, TaskraftError], *, task_ids: Sequence[int] = (), items: int
    ) -> None:
        first_item, first = next(iter(refused.items()))
        super().__init__(
            f"{len(refused)} of {items} items were refused; "
            f"item {first_item}: {first.reason}: {first}"
        )
        self.refused: Mapping[int, TaskraftError] = refused
        self.task_ids = task_ids


class ClientClosed(TaskraftError):
    """Tell that the client or the subscription was closed before or during the call."""

    reason = "CLIENT_CLOSED"
    code = "CANCELLED"


class ClientForked(TaskraftError):
    """Tell that this process was forked from one with a connected client.

    Threads and connections do not survive a fork. Fork before the first call, close all clients
    before forking, or start processes with the method "spawn".
    """

    reason = "CLIENT_FORKED"
    code = "FAILED_PRECONDITION"
