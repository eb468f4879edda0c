"""What does not fit that which is there."""

from __future__ import annotations

from taskraft.errors._taskraft_error import TaskraftError


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

    @property
    def task(self) -> str:
        """The task, like "emails/17"; empty if only the number of the lease is known."""
        tube, task_id = self.metadata.get("tube", ""), self.metadata.get("task_id", "")
        return f"{tube}/{task_id}" if tube else ""


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
