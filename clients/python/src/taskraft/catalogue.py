"""Explain every error reason of the API in one table.

`CATALOGUE` has one row for each value of `taskraft.v1.Error.Reason`. The table determines which
exception the client raises, which calls it retries, the exit codes of the command line, the output
of `taskraft explain`, and the page `docs/errors.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from taskraft import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

DOMAIN: Final = "taskraft.v1"
"""Value of `ErrorInfo.domain` in every error that a taskraft node sends."""


@dataclass(frozen=True, slots=True)
class ErrorReason:
    """Meaning, advice and client behaviour of one error reason."""

    exception: type[errors.TaskraftError]
    """Exception class that the client raises."""
    meaning: str
    """Description of the error, for people."""
    advice: str
    """Advice for people."""
    is_retried: bool = False
    """True: the client retries the call with the same request_id until the deadline of the call."""
    final_advice: str = ""
    """Advice if the client has given up; empty: the advice."""
    reason: str = field(init=False)
    """Stable name for programs."""
    code: str = field(init=False)
    """Name of the gRPC status code."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", self.exception.reason)
        object.__setattr__(self, "code", self.exception.code)


CATALOGUE: Final[Mapping[str, ErrorReason]] = {
    row.reason: row
    for row in (
        ErrorReason(
            errors.TubeNotFound,
            "The request names a tube that does not exist.",
            "Check the name with `taskraft tube list`, or create the tube with `taskraft tube "
            "create`.",
        ),
        ErrorReason(
            errors.TaskNotFound,
            "The tube has no task with this id or unique key. The task never existed, or it was "
            "removed.",
            "A finished task is removed unless the tube keeps it. To keep finished tasks, set the "
            "tube option on_ack.",
        ),
        ErrorReason(
            errors.SessionNotFound,
            "The session does not exist: it was never opened, it was closed, or it has expired.",
            "Open a new session. Tasks that the old session held were released and can be taken "
            "again.",
        ),
        ErrorReason(
            errors.GroupNotFound,
            "The request names a group that does not exist.",
            "Check the name, or create the group.",
        ),
        ErrorReason(
            errors.ScheduleNotFound,
            "The request names a schedule that does not exist.",
            "Check the name with `taskraft schedule list`.",
        ),
        ErrorReason(
            errors.MemberNotFound,
            "The cluster has no member with this name or id.",
            "Check the name with `taskraft cluster status`.",
        ),
        ErrorReason(
            errors.DependencyNotFound,
            "The new task depends on a task that does not exist, was removed, or was refused in "
            "the same request.",
            "Put both tasks in one batch, or let the tube keep finished tasks (tube option "
            "on_ack).",
        ),
        ErrorReason(
            errors.SnapshotNotFound,
            "The node does not keep this snapshot any longer.",
            "Save a new snapshot.",
        ),
        ErrorReason(
            errors.BulkSweepNotFound,
            "There is no bulk sweep with this number, or you may not read its tube.",
            "Check the number: taskraft bulk list. Ended sweeps are kept for 30 days.",
        ),
        ErrorReason(
            errors.TubeExists,
            "A tube with this name already exists.",
            "Use the existing tube, or set if_not_exists to accept a tube with other options.",
        ),
        ErrorReason(
            errors.KeyTaken,
            "Another unfinished task in the tube has this unique key. Metadata `task_id` is the id "
            "of that task.",
            "If the task needs to run only once, do nothing. Otherwise set on_conflict to return, "
            "restart or replace the existing task.",
        ),
        ErrorReason(
            errors.RequestIdReused,
            "This request_id was already used with a different request, by the same principal with "
            "the same client_id.",
            "Create a new request_id (for example a UUID) for each new request. Reuse a request_id "
            "only to retry the same request. If the ids are counted or natural keys, set a "
            "client_id that no other application uses.",
        ),
        ErrorReason(
            errors.MemberExists,
            "The cluster already has a member with this name, and that member has another data "
            "directory.",
            "Remove the existing member first, or choose another name. A node that has lost its "
            "data retries by itself until its old member no longer counts as active.",
        ),
        ErrorReason(
            errors.GroupExists,
            "A group with this name already exists.",
            "Choose another name.",
        ),
        ErrorReason(
            errors.ScheduleExists,
            "A schedule with this name already exists.",
            "Update the existing schedule, or choose another name.",
        ),
        ErrorReason(
            errors.ScheduleChanged,
            "The definition of the schedule has changed since its etag was read. Metadata `etag` "
            "is the current etag.",
            "Read the schedule again and repeat the change.",
        ),
        ErrorReason(
            errors.LeaseStale,
            "The lease has ended: its TTR expired, its session ended, or another consumer has "
            "taken the task since.",
            "Stop working on the task and do not retry the call. If the work takes longer than the "
            "TTR, touch the lease or set a longer ttr.",
        ),
        ErrorReason(
            errors.WrongState,
            "The state of the task does not allow this operation. Metadata `state` is the current "
            "state. From a transfer of the leadership: the wall clock of the named member is "
            "wrong.",
            "Look at the task with `taskraft peek TUBE ID`, then choose an operation that its "
            "state allows. After a transfer: set the clock, or name another member.",
        ),
        ErrorReason(
            errors.TubeBusy,
            "The tube has TAKEN tasks or waiting consumers, or the option can change only while "
            "the tube is empty.",
            "To drop the tube, stop its consumers first or set force. To change the option, empty "
            "the tube first.",
        ),
        ErrorReason(
            errors.KindUnsuitable,
            "The kind of the tube does not support this operation or option.",
            "Use a tube of another kind. For example, fifottl supports delay, ttl, ttr and "
            "priority.",
        ),
        ErrorReason(
            errors.DriverMissing,
            "The node does not have the driver of this custom tube installed.",
            "Install the driver's distribution on every node, then restart the nodes one at a "
            "time.",
        ),
        ErrorReason(
            errors.TubeQuarantined,
            "The driver of this custom tube failed while an entry was applied. Since then the tube "
            "accepts no tasks and leases none out. Metadata `driver` is the driver.",
            "Create a tube with another driver and move the tasks to it, or truncate or drop this "
            "tube; the logs of the nodes contain the exception of the driver.",
        ),
        ErrorReason(
            errors.DriverFailed,
            "The driver of this custom tube raised an exception for a task of this put, or returned"
            " an invalid value. Nothing was put. Metadata `item` is the position of the task.",
            "Change the task, or install a corrected driver under a new name and move the tasks to "
            "a tube with the new driver.",
        ),
        ErrorReason(
            errors.MemberNeeded,
            "This membership change would leave the cluster without a working majority of voters.",
            "Check `taskraft cluster status`. Restart the nodes that are down, or add members, "
            "before you repeat the change.",
        ),
        ErrorReason(
            errors.VersionTooLow,
            "The cluster version in force is too low for the operation, or a member prevents the "
            "raise of the version. Metadata `version` is the version in force.",
            "Upgrade the members that `taskraft cluster status` names, then run `taskraft cluster "
            "upgrade`; see docs/upgrading.md.",
        ),
        ErrorReason(
            errors.TubeFull,
            "The tube has reached its capacity in tasks or in bytes.",
            "Wait until consumers finish tasks, set room_wait so that the server waits for "
            "capacity, or raise the capacity of the tube.",
        ),
        ErrorReason(
            errors.RateLimited,
            "The request exceeds a rate limit.",
            "Send fewer requests. RetryInfo says how long to wait.",
            is_retried=True,
            final_advice="The limit was exceeded all the time. Send fewer requests, or call again "
            "later with a longer timeout.",
        ),
        ErrorReason(
            errors.LimitReached,
            "The cluster has reached its maximum number of tubes, sessions, groups, schedules or "
            "feed consumers, the principal has reached its share of them, or the leader has "
            "reached its memory limit for temporary tubes. The metadata name the limit and its "
            "number.",
            "Remove entries that are no longer needed.",
        ),
        ErrorReason(
            errors.Overloaded,
            "The node has reached its maximum number of pending requests.",
            "Send fewer and larger requests. The client waits as long as RetryInfo says.",
            is_retried=True,
            final_advice="The node was overloaded all the time. Send fewer and larger requests, or "
            "call again later with a longer timeout.",
        ),
        ErrorReason(
            errors.DiskLow,
            "Free disk space is below the low-water mark. The node refuses new content; "
            "acknowledging and deleting still work.",
            "Acknowledge or delete tasks, or give the nodes more disk space.",
        ),
        ErrorReason(
            errors.PayloadTooLarge,
            "A payload, the headers or the whole message exceeds its size limit. Metadata `limit` "
            "and `actual` are the sizes.",
            "Store large content elsewhere and put a reference to it into the payload.",
        ),
        ErrorReason(
            errors.InvalidField,
            "One or more fields are missing, malformed or out of range.",
            "Correct the fields. The error lists all violations.",
        ),
        ErrorReason(
            errors.TooManySteps,
            "The request needs more steps, such as comparisons of tube names with patterns, than "
            "one request may take, has more fields than one message may have, or names tasks with "
            "more content than one request may read, change or move. Metadata `steps` and `limit` "
            "are the numbers.",
            "Use fewer patterns, or patterns that begin or end with different texts, and split the "
            "request.",
        ),
        ErrorReason(
            errors.TubePaused,
            "The tube is paused: it refuses new tasks.",
            "Wait until an operator resumes the tube.",
        ),
        ErrorReason(
            errors.Draining,
            "The node is shutting down.",
            "Do nothing: the client retries on another node.",
            is_retried=True,
            final_advice="No other node took the call over. Check `taskraft cluster status`, and "
            "add the addresses of all nodes to the target.",
        ),
        ErrorReason(
            errors.NoLeader,
            "The cluster has no leader: an election is running, or a majority of the voters is "
            "down.",
            "Wait a second. If the error persists, check `taskraft cluster status` and start the "
            "nodes that are down.",
            is_retried=True,
            final_advice="No leader was elected in that time. Check `taskraft cluster status` and "
            "start the nodes that are down.",
        ),
        ErrorReason(
            errors.NotLeader,
            "The node is not the leader and could not forward the request. Metadata `leader` is "
            "the address of the leader.",
            "Do nothing: the client retries on the leader.",
            is_retried=True,
            final_advice="The nodes and this client do not reach the leader. Check the network, "
            "and compare `taskraft cluster status` of each node.",
        ),
        ErrorReason(
            errors.CommitUnknown,
            "The outcome is unknown: the request was written, but the node lost leadership, or the "
            "deadline passed, before the request was confirmed.",
            "Retry with the same request_id. A retry has no second effect.",
            is_retried=True,
            final_advice="No majority of the nodes confirmed the call. Check `taskraft cluster "
            "status` and start the nodes that are down.",
        ),
        ErrorReason(
            errors.NodeBehind,
            "The node has not applied the requested log position in time.",
            "Retry, ask another node, or allow a larger staleness for the read.",
            is_retried=True,
        ),
        ErrorReason(
            errors.MembersChanging,
            "An earlier membership change is not finished.",
            "Retry in a moment.",
            is_retried=True,
            final_advice="The earlier change is stuck. `taskraft cluster status` shows its member; "
            "start the node of the member, or remove the member.",
        ),
        ErrorReason(
            errors.ClientSilent,
            "The client sent no message on its stream for the `silence_max` of the subscription, "
            "or no first message within 10 s.",
            "Do nothing: the client subscribes again. If the error persists, the process hangs or "
            "its event loop is blocked.",
            is_retried=True,
            final_advice="Look for a call that blocks the event loop for longer than "
            "`silence_max`.",
        ),
        ErrorReason(
            errors.StateDamaged,
            "A part of the node's stored state is damaged.",
            "Retry: the node repairs its state from another member.",
            is_retried=True,
            final_advice="The node could not repair its state, because it is the only member or no "
            "member has a whole state. See docs/disaster.md.",
        ),
        ErrorReason(
            errors.CursorTrimmed,
            "Retention has removed the events at this position. Metadata `low` is the oldest "
            "position that is left.",
            "Continue at `low` and record the gap, or keep the feed longer (setting "
            "feed_retention).",
        ),
        ErrorReason(
            errors.FeedMismatch,
            "The position belongs to another change feed. A restore has started a new feed.",
            "Read the new feed from its beginning.",
        ),
        ErrorReason(
            errors.NotSupported,
            "The server does not implement this method or option.",
            "Use a newer server. `taskraft cluster status` shows the version.",
        ),
        ErrorReason(
            errors.NoCredentials,
            "The request has no credentials, or the credentials are not valid.",
            "Configure the client with a token or a certificate that the cluster knows (see "
            "docs/security.md).",
        ),
        ErrorReason(
            errors.NotAllowed,
            "The caller does not have the permission for this operation. Metadata `principal`, "
            "`verb` and `tube` name the missing permission.",
            "Ask the operator of the cluster to grant the permission.",
        ),
        ErrorReason(
            errors.InternalError,
            "The server has a bug.",
            "Report the bug with the server's log around the time of the request.",
        ),
    )
}
"""Rows by reason."""


def from_reason(
    reason: str,
    message: str,
    *,
    metadata: Mapping[str, str] | None = None,
    retry_ms: int | None = None,
    code: str | None = None,
) -> errors.TaskraftError:
    """Return the exception for a reason that a server sent.

    A reason of a newer server that this client version does not know becomes a plain
    `TaskraftError` with that reason.
    """
    row = CATALOGUE.get(reason)
    if row is not None:
        return row.exception(
            message or row.meaning,
            metadata=metadata,
            retry_ms=retry_ms,
            code=code,
            advice=row.advice,
        )
    error = errors.TaskraftError(message, metadata=metadata, retry_ms=retry_ms, code=code)
    error.reason = reason
    return error


def is_retried(error: errors.TaskraftError) -> bool:
    """Return whether the client retries a call that failed with this error."""
    if isinstance(error, errors.Unavailable):
        return True
    row = CATALOGUE.get(error.reason)
    return row is not None and row.is_retried
