"""Explain every reason of the contract: one table from which all that concerns errors follows.

`CATALOGUE` has one row for each value of `taskraft.v1.Error.Reason`. The exceptions raised, the
client's retries, the exit codes of the command line, `taskraft explain` and `docs/errors.md` are
made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from taskraft import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

DOMAIN: Final = "taskraft.v1"
"""The domain of every ErrorInfo that a taskraft node sends."""


@dataclass(frozen=True, slots=True)
class ErrorReason:
    """Everything that there is to know about one reason of the contract."""

    exception: type[errors.TaskraftError]
    """What the client raises."""
    meaning: str
    """What happened, in one sentence."""
    advice: str
    """What to do, in one sentence."""
    is_retried: bool = False
    """The client repeats the call by itself, with the same request_id, until its deadline."""
    reason: str = field(init=False)
    """The stable name."""
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
            "No tube has this name.",
            "Check the name with `taskraft tube list`, or create it with `taskraft tube create`.",
        ),
        ErrorReason(
            errors.TaskNotFound,
            "No task has this id or key in this tube, or not any more.",
            "Finished tasks leave the tube unless it keeps them (option on_ack).",
        ),
        ErrorReason(
            errors.SessionNotFound,
            "The session was never opened, was closed, or has expired.",
            "Open another; the tasks of the lost one were released and come again.",
        ),
        ErrorReason(
            errors.GroupNotFound, "No group has this name.", "Check the name, or create the group."
        ),
        ErrorReason(
            errors.ScheduleNotFound,
            "No schedule has this name.",
            "Check the name with `taskraft schedule list`.",
        ),
        ErrorReason(
            errors.MemberNotFound,
            "No member of the cluster has this name or id.",
            "Check the name with `taskraft cluster status`.",
        ),
        ErrorReason(
            errors.DependencyNotFound,
            "A task that the new one depends on does not exist, not any more, or was refused.",
            "Put both in one batch, or let the tube keep finished tasks (option on_ack).",
        ),
        ErrorReason(
            errors.TubeExists,
            "A tube of this name exists already.",
            "Go on, or set if_not_exists when any options will do.",
        ),
        ErrorReason(
            errors.KeyTaken,
            "An unfinished task of the tube has this unique key; metadata task_id names it.",
            "Nothing, if once is enough; other values of on_conflict return it or replace it.",
        ),
        ErrorReason(
            errors.RequestIdReused,
            "This request_id was used before with another request.",
            "Make a new request_id (a UUID) for every new request; repeat it only for retries.",
        ),
        ErrorReason(
            errors.MemberExists,
            "The cluster has a member of this name, with another data directory.",
            "Remove that member first, or choose another name.",
        ),
        ErrorReason(
            errors.GroupExists, "A group of this name exists already.", "Choose another name."
        ),
        ErrorReason(
            errors.ScheduleExists, "A schedule of this name exists already.", "Update it instead."
        ),
        ErrorReason(
            errors.LeaseStale,
            "The lease is over: the time to run ended, the session was lost, or another holds it.",
            "Stop working on the task and never retry; use Touch or a longer ttr next time.",
        ),
        ErrorReason(
            errors.WrongState,
            "The task is in a state that does not allow the operation; metadata state names it.",
            "Look at the task with `taskraft peek TUBE ID`, then choose the operation that fits.",
        ),
        ErrorReason(
            errors.TubeBusy,
            "The tube has taken tasks, or consumers wait on it.",
            "Stop its consumers first, or set force.",
        ),
        ErrorReason(
            errors.KindUnsuitable,
            "Tubes of this kind do not know the operation or the option.",
            "Use a tube of another kind, for example fifottl for delay, ttl, ttr and priority.",
        ),
        ErrorReason(
            errors.DriverMissing,
            "The driver of this tube kind is not installed on the node.",
            "Install the driver's distribution on every node and restart them one by one.",
        ),
        ErrorReason(
            errors.MemberNeeded,
            "The cluster could not go on after this change of its members.",
            "See `taskraft cluster status`; bring members back, or add others, before.",
        ),
        ErrorReason(
            errors.TubeFull,
            "The tube holds as many tasks or bytes as it may.",
            "Wait for its consumers, wait in the server with room_wait, or raise its capacity.",
        ),
        ErrorReason(
            errors.RateLimited,
            "A rate limit was reached.",
            "Slow down; RetryInfo says when.",
            is_retried=True,
        ),
        ErrorReason(
            errors.LimitReached,
            "The cluster holds as many tubes, sessions, groups or schedules as it may, or the "
            "leader as much in temporary tubes.",
            "Remove some that are not needed.",
        ),
        ErrorReason(
            errors.Overloaded,
            "The node has more requests in hand than it may.",
            "Send fewer and larger requests; the client waits as RetryInfo says.",
            is_retried=True,
        ),
        ErrorReason(
            errors.DiskLow,
            "The disk is nearly full: new content is refused, acks and deletes still work.",
            "Finish or delete tasks, or give the nodes more disk.",
        ),
        ErrorReason(
            errors.PayloadTooLarge,
            "A payload, the headers or the message is larger than allowed; metadata limit, actual.",
            "Store large content elsewhere and put a reference to it.",
        ),
        ErrorReason(
            errors.InvalidField,
            "Fields are missing, malformed or out of range.",
            "Correct the fields; all violations are listed at once.",
        ),
        ErrorReason(
            errors.TubePaused,
            "An operator has paused the tube.",
            "Wait until it is resumed.",
        ),
        ErrorReason(
            errors.Draining,
            "The node is stopping.",
            "Nothing: the client asks another node.",
            is_retried=True,
        ),
        ErrorReason(
            errors.NoLeader,
            "There is no leader at present: an election runs, or a majority of nodes is down.",
            "Wait a second; if it lasts, start the nodes that are down: `taskraft cluster status`.",
            is_retried=True,
        ),
        ErrorReason(
            errors.NotLeader,
            "The node does not lead and could not forward; metadata leader names who does.",
            "Nothing: the client asks the leader.",
            is_retried=True,
        ),
        ErrorReason(
            errors.CommitUnknown,
            "The outcome is not known: leader or time was lost between writing and confirming.",
            "Ask again with the same request_id, which has no second effect.",
            is_retried=True,
        ),
        ErrorReason(
            errors.NodeBehind,
            "The replica has not applied what was asked for in time.",
            "Ask again, ask another node, or read without a bound on staleness.",
            is_retried=True,
        ),
        ErrorReason(
            errors.MembersChanging,
            "An earlier change of the members is not finished.",
            "Ask again in a moment.",
            is_retried=True,
        ),
        ErrorReason(
            errors.CursorTrimmed,
            "The position was trimmed by retention; metadata low names the oldest that is left.",
            "Start from low and note the gap, or keep the feed longer (feed_retention_ms).",
        ),
        ErrorReason(
            errors.FeedMismatch,
            "The position belongs to another feed: history was broken by a restore.",
            "Start over from the new feed's beginning.",
        ),
        ErrorReason(
            errors.NotSupported,
            "The server does not implement this part of the contract yet.",
            "Use a newer server; `taskraft cluster status` shows versions.",
        ),
        ErrorReason(
            errors.NoCredentials,
            "There were no, or no valid, credentials.",
            "Give the client a token or a certificate that the cluster knows (docs/security.md).",
        ),
        ErrorReason(
            errors.NotAllowed,
            "The caller may not do this; metadata principal, verb and tube say who and what.",
            "Ask the cluster's operator for the permission.",
        ),
        ErrorReason(
            errors.InternalError,
            "The server has a defect.",
            "Report it with the server's log around this time.",
        ),
    )
}
"""One row for each value of `taskraft.v1.Error.Reason`, by name."""


def from_reason(
    reason: str,
    message: str,
    *,
    metadata: Mapping[str, str] | None = None,
    retry_ms: int | None = None,
    code: str | None = None,
) -> errors.TaskraftError:
    """Make the exception for a reason that a server gave.

    A reason that this version does not know, from a newer server, becomes a plain `TaskraftError`
    that carries it.
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
    """Return whether the client repeats a call that failed so, with the same request_id."""
    if isinstance(error, errors.Unavailable):
        return True
    row = CATALOGUE.get(error.reason)
    return row is not None and row.is_retried
