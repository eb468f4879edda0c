"""Errors after which a later retry can succeed."""

from __future__ import annotations

from taskraft.errors._taskraft_error import TaskraftError


class RetryableError(TaskraftError):
    """The same call may succeed later."""

    code = "UNAVAILABLE"


class Unavailable(RetryableError):
    """No node could be reached before the deadline of the call.

    Attributes:
        is_sent: True if the request may have reached a node before the connection was lost.
    """

    reason = "UNAVAILABLE"
    advice = (
        "Check that the cluster is running and that the target is correct. "
        "`taskraft dev` starts a local cluster."
    )

    def __init__(self, message: str = "", *, advice: str = "", is_sent: bool = True) -> None:
        super().__init__(message, advice=advice)
        self.is_sent = is_sent


class NoLeader(RetryableError):
    """The cluster currently has no leader."""

    reason = "NO_LEADER"


class NotLeader(RetryableError):
    """The node is not the leader and could not forward the request."""

    reason = "NOT_LEADER"


class Draining(RetryableError):
    """The node is shutting down."""

    reason = "DRAINING"


class NodeBehind(RetryableError):
    """The node has not applied the requested log position in time."""

    reason = "NODE_BEHIND"


class MembersChanging(RetryableError):
    """An earlier membership change is not finished."""

    reason = "MEMBERS_CHANGING"


class ClientSilent(RetryableError):
    """The client sent no message on its stream for the maximum time that it had set.

    The first message of a stream must arrive within 10 s.
    """

    reason = "CLIENT_SILENT"


class StateDamaged(RetryableError):
    """A part of the node's stored state is damaged, and the node repairs it if it can."""

    reason = "STATE_DAMAGED"


class CommitUnknown(RetryableError):
    """The outcome is unknown: the call may or may not have taken effect."""

    reason = "COMMIT_UNKNOWN"


class Overloaded(RetryableError):
    """The node has reached its maximum number of pending requests."""

    reason = "OVERLOADED"
    code = "RESOURCE_EXHAUSTED"


class RateLimited(RetryableError):
    """The request exceeds a rate limit."""

    reason = "RATE_LIMITED"
    code = "RESOURCE_EXHAUSTED"


class TubeFull(RetryableError):
    """The tube has reached its capacity in tasks or in bytes."""

    reason = "TUBE_FULL"
    code = "RESOURCE_EXHAUSTED"


class TubePaused(RetryableError):
    """An operator has paused the tube."""

    reason = "TUBE_PAUSED"
