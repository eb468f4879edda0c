"""What may succeed later: waiting helps."""

from __future__ import annotations

from taskraft.errors._taskraft_error import TaskraftError


class RetryableError(TaskraftError):
    """Tell that the same call may succeed later."""

    code = "UNAVAILABLE"


class Unavailable(RetryableError):
    """Tell that no node could be reached within the time allowed.

    Attributes:
        is_sent: The call may have reached a node before the connection was lost.
    """

    reason = "UNAVAILABLE"
    advice = "Is the cluster running, and is the target right? `taskraft dev` starts one."

    def __init__(self, message: str = "", *, advice: str = "", is_sent: bool = True) -> None:
        super().__init__(message, advice=advice)
        self.is_sent = is_sent


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
