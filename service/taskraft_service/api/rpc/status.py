"""Map error reasons to gRPC statuses with their details.

Every failed call carries exactly one google.rpc.ErrorInfo (domain "taskraft.v1"). A retryable
reason adds RetryInfo, and invalid fields add BadRequest with the violations (AIP-193).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from taskraft.v1 import error_pb2
from taskraft_replication.errors import (
    NotRaftLeader,
    ReadUnconfirmed,
    SnapshotUnavailable,
    Stopped,
)
from taskraft_service.access.caller import PermissionDenied, Unauthenticated
from taskraft_service.leader.command_submitter import (
    CommandTooLarge,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
    VersionTooLow,
)
from taskraft_service.limits import MESSAGE_BYTES_MAX
from taskraft_service.queue.entities.refusal import ItemRefusal, Refusal
from taskraft_service.storage.rocks import StateDamaged
from taskraft_service.wire import WireMalformed

DOMAIN: Final = "taskraft.v1"
STATUS_KEY: Final = "grpc-status-details-bin"
PUSHBACK_KEY: Final = "grpc-retry-pushback-ms"
RETRY_DELAY_MS: Final = 200
"""Default wait before a retry, in ms, sent to the caller in RetryInfo."""

_Reason = error_pb2.Error
_Code = grpc.StatusCode

CODES: Final[Mapping[int, grpc.StatusCode]] = {
    _Reason.REASON_UNSPECIFIED: _Code.UNKNOWN,
    _Reason.TUBE_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.TASK_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.SESSION_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.GROUP_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.SCHEDULE_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.MEMBER_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.DEPENDENCY_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.SNAPSHOT_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.BULK_SWEEP_NOT_FOUND: _Code.NOT_FOUND,
    _Reason.TUBE_EXISTS: _Code.ALREADY_EXISTS,
    _Reason.KEY_TAKEN: _Code.ALREADY_EXISTS,
    _Reason.REQUEST_ID_REUSED: _Code.ALREADY_EXISTS,
    _Reason.GROUP_EXISTS: _Code.ALREADY_EXISTS,
    _Reason.SCHEDULE_EXISTS: _Code.ALREADY_EXISTS,
    _Reason.MEMBER_EXISTS: _Code.ALREADY_EXISTS,
    _Reason.SCHEDULE_CHANGED: _Code.ABORTED,
    _Reason.LEASE_STALE: _Code.FAILED_PRECONDITION,
    _Reason.WRONG_STATE: _Code.FAILED_PRECONDITION,
    _Reason.TUBE_BUSY: _Code.FAILED_PRECONDITION,
    _Reason.KIND_UNSUITABLE: _Code.FAILED_PRECONDITION,
    _Reason.DRIVER_MISSING: _Code.FAILED_PRECONDITION,
    _Reason.TUBE_QUARANTINED: _Code.FAILED_PRECONDITION,
    _Reason.DRIVER_FAILED: _Code.FAILED_PRECONDITION,
    _Reason.MEMBER_NEEDED: _Code.FAILED_PRECONDITION,
    _Reason.VERSION_TOO_LOW: _Code.FAILED_PRECONDITION,
    _Reason.TUBE_FULL: _Code.RESOURCE_EXHAUSTED,
    _Reason.RATE_LIMITED: _Code.RESOURCE_EXHAUSTED,
    _Reason.LIMIT_REACHED: _Code.RESOURCE_EXHAUSTED,
    _Reason.OVERLOADED: _Code.RESOURCE_EXHAUSTED,
    _Reason.DISK_LOW: _Code.RESOURCE_EXHAUSTED,
    _Reason.PAYLOAD_TOO_LARGE: _Code.INVALID_ARGUMENT,
    _Reason.INVALID_FIELD: _Code.INVALID_ARGUMENT,
    _Reason.TOO_MANY_STEPS: _Code.INVALID_ARGUMENT,
    _Reason.TUBE_PAUSED: _Code.UNAVAILABLE,
    _Reason.DRAINING: _Code.UNAVAILABLE,
    _Reason.NO_LEADER: _Code.UNAVAILABLE,
    _Reason.NOT_LEADER: _Code.UNAVAILABLE,
    _Reason.COMMIT_UNKNOWN: _Code.UNAVAILABLE,
    _Reason.NODE_BEHIND: _Code.UNAVAILABLE,
    _Reason.MEMBERS_CHANGING: _Code.UNAVAILABLE,
    _Reason.CLIENT_SILENT: _Code.UNAVAILABLE,
    _Reason.STATE_DAMAGED: _Code.UNAVAILABLE,
    _Reason.CURSOR_TRIMMED: _Code.OUT_OF_RANGE,
    _Reason.FEED_MISMATCH: _Code.FAILED_PRECONDITION,
    _Reason.NOT_IMPLEMENTED: _Code.UNIMPLEMENTED,
    _Reason.NO_CREDENTIALS: _Code.UNAUTHENTICATED,
    _Reason.NOT_ALLOWED: _Code.PERMISSION_DENIED,
    _Reason.INTERNAL_ERROR: _Code.INTERNAL,
}
"""gRPC status code of each reason. A test checks that the table covers the whole contract."""

RETRYABLE_REASONS: Final = frozenset(
    {
        _Reason.TUBE_FULL,
        _Reason.RATE_LIMITED,
        _Reason.OVERLOADED,
        _Reason.TUBE_PAUSED,
        _Reason.DRAINING,
        _Reason.NO_LEADER,
        _Reason.NOT_LEADER,
        _Reason.COMMIT_UNKNOWN,
        _Reason.NODE_BEHIND,
        _Reason.MEMBERS_CHANGING,
        _Reason.CLIENT_SILENT,
        _Reason.STATE_DAMAGED,
    }
)
"""Reasons whose errors carry RetryInfo."""

VIOLATIONS_BYTES_MAX: Final = 4 * 1024
"""Maximum size of BadRequest. Clients accept 8 KiB of trailing metadata by default, and some count
the base64 encoding."""
VIOLATION_OVERHEAD_BYTES: Final = 3
"""Encoding overhead of one violation inside BadRequest."""


class CallRefused(Exception):
    """The call is answered with an error status; raised by the handlers of this package only.

    Attributes:
        reason: number of the taskraft.v1.Error.Reason.
        message: one sentence for people.
        metadata: the variables of the message, for programs.
        violations: with INVALID_FIELD, the path and the description of each invalid field.
        retry_ms: recommended wait before a retry, in ms; sent only with a retryable reason.
    """

    def __init__(
        self,
        reason: int,
        message: str,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        retry_ms: int = RETRY_DELAY_MS,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = violations
        self.retry_ms = retry_ms


def refused_by_queue(refusal: Refusal) -> CallRefused:
    """Return the exception for a command that the queue refused."""
    violations = refusal.violations
    if (
        not violations
        and int(refusal.reason) == _Reason.INVALID_FIELD
        and "field" in refusal.metadata
    ):
        violations = ((refusal.metadata["field"], refusal.message),)
    return CallRefused(int(refusal.reason), refusal.message, refusal.metadata, violations)


_REASONS: Final[Mapping[type[Exception], tuple[int, str]]] = {
    Unauthenticated: (_Reason.NO_CREDENTIALS, ""),
    LeaderOverloaded: (_Reason.OVERLOADED, ""),
    ReadUnconfirmed: (_Reason.NO_LEADER, "no quorum confirms the read"),
    NotProposed: (_Reason.NOT_LEADER, "this node is not the leader"),
    NotRaftLeader: (_Reason.NOT_LEADER, "this node is not the leader"),
    Stopped: (_Reason.DRAINING, "this node is stopping"),
    SnapshotUnavailable: (_Reason.STATE_DAMAGED, ""),
    StateDamaged: (_Reason.STATE_DAMAGED, "a part of the stored state of this node is damaged"),
    WireMalformed: (_Reason.INVALID_FIELD, "the request is not a valid message"),
}
"""Reason and message of internal errors without details; the error's own text if it is empty."""


def refused_for(error: Exception) -> CallRefused | None:
    """Convert an internal error to the error of the call; return None if the error is a bug."""
    match error:
        case CallRefused():
            return error
        case PermissionDenied():
            missing = {"principal": error.principal, "verb": error.verb, "tube": error.name}
            return CallRefused(_Reason.NOT_ALLOWED, str(error), missing)
        case OutcomeUnknown():
            return CallRefused(_Reason.COMMIT_UNKNOWN, f"the outcome is unknown: {error}")
        case VersionTooLow():
            versions = {"version": str(error.version), "needed": str(error.needed)}
            return CallRefused(_Reason.VERSION_TOO_LOW, str(error), versions)
        case CommandTooLarge():
            sizes = {"limit": str(error.bytes_max), "actual": str(error.size_bytes)}
            return CallRefused(_Reason.PAYLOAD_TOO_LARGE, str(error), {"field": "message", **sizes})
        case _:
            found = (each for kind, each in _REASONS.items() if isinstance(error, kind))
            reason, message = next(found, (None, ""))
            return None if reason is None else CallRefused(reason, message or str(error))


def reason_name(reason: int) -> str:
    """Return the stable name of a reason."""
    return _Reason.Reason.Name(_Reason.Reason.ValueType(reason))


def reason_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the reason in the trailing metadata of a failed call.

    The reason is empty if no taskraft node sent the error.
    """
    for key, packed in metadata or ():
        if key != STATUS_KEY or not isinstance(packed, bytes):
            continue
        for detail in status_pb2.Status.FromString(packed).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return str(info.reason)
    return ""


def status_metadata(error: CallRefused) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailing metadata of a refused call: its status, and when a retry is useful."""
    status = (STATUS_KEY, rpc_status(error).SerializeToString())
    if error.reason not in RETRYABLE_REASONS:
        return (status,)
    return (status, (PUSHBACK_KEY, str(error.retry_ms or RETRY_DELAY_MS)))


def rpc_status(error: CallRefused) -> status_pb2.Status:
    """Return the google.rpc.Status of a refused call, with its details."""
    details: list[any_pb2.Any] = []

    def add(
        detail: (
            error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo | error_details_pb2.BadRequest
        ),
    ) -> None:
        packed = any_pb2.Any()
        packed.Pack(detail)
        details.append(packed)

    name = reason_name(error.reason)
    bad_request = _bad_request(error.violations)
    metadata = error.metadata
    if len(bad_request.field_violations) < len(error.violations):
        metadata = {**metadata, "violations": str(len(error.violations))}
    add(error_details_pb2.ErrorInfo(reason=name, domain=DOMAIN, metadata=metadata))
    if error.reason in RETRYABLE_REASONS:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(error.retry_ms)
        add(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.violations:
        add(bad_request)
    code: int = CODES[error.reason].value[0]
    return status_pb2.Status(code=code, message=error.message, details=details)


def _bad_request(violations: Sequence[tuple[str, str]]) -> error_details_pb2.BadRequest:
    """Return the leading violations that fit into ``VIOLATIONS_BYTES_MAX``."""
    detail = error_details_pb2.BadRequest()
    size_bytes = 0
    for field, description in violations:
        one = error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
        size_bytes += one.ByteSize() + VIOLATION_OVERHEAD_BYTES
        if size_bytes > VIOLATIONS_BYTES_MAX:
            break
        detail.field_violations.append(one)
    return detail


def error_message(refusal: Refusal) -> error_pb2.Error:
    """Return a refusal of the queue as a message, for answers that refuse single items."""
    reason = error_pb2.Error.Reason.ValueType(int(refusal.reason))
    return error_pb2.Error(reason=reason, message=refusal.message, metadata=refusal.metadata)


def item_errors(refused_items: Sequence[ItemRefusal]) -> list[error_pb2.ItemError]:
    """Return the refused items of a list as messages."""
    return [
        error_pb2.ItemError(item=one.item, error=error_message(one.refusal))
        for one in refused_items
    ]


def message_too_large(raw: bytes) -> CallRefused:
    """Return the exception for a message above the limit of the contract.

    gRPC's own limit is higher, so messages slightly above the limit of the contract get this error.
    """
    return CallRefused(
        _Reason.PAYLOAD_TOO_LARGE,
        f"the message has {len(raw)} bytes, more than {MESSAGE_BYTES_MAX}",
        {"field": "message", "limit": str(MESSAGE_BYTES_MAX), "actual": str(len(raw))},
    )


def tube_not_found(name: str) -> CallRefused:
    """Return the exception for a call that names a tube that does not exist."""
    return CallRefused(_Reason.TUBE_NOT_FOUND, f"no tube is called {name!r}", {"tube": name})


def task_not_found(item: int, task_id: int) -> error_pb2.ItemError:
    """Return the error of a list item whose task does not exist."""
    error = error_pb2.Error(
        reason=_Reason.TASK_NOT_FOUND,
        message=f"there is no task {task_id}",
        metadata={"task_id": str(task_id)},
    )
    return error_pb2.ItemError(item=item, error=error)
