"""Errors of requests that conflict with the current state."""

from __future__ import annotations

from taskraft.errors._taskraft_error import TaskraftError


class ConflictError(TaskraftError):
    """The request conflicts with the current state."""

    code = "FAILED_PRECONDITION"


class TubeExists(ConflictError):
    """A tube with this name already exists."""

    reason = "TUBE_EXISTS"
    code = "ALREADY_EXISTS"


class KeyTaken(ConflictError):
    """Another unfinished task has this unique key."""

    reason = "KEY_TAKEN"
    code = "ALREADY_EXISTS"

    @property
    def task_id(self) -> int | None:
        """Id of the task that has the key; None if the server did not send it."""
        text = self.metadata.get("task_id")
        return int(text) if text else None


class RequestIdReused(ConflictError):
    """The request_id was already used with a different request."""

    reason = "REQUEST_ID_REUSED"
    code = "ALREADY_EXISTS"


class MemberExists(ConflictError):
    """The cluster already has a member with this name and another data directory."""

    reason = "MEMBER_EXISTS"
    code = "ALREADY_EXISTS"


class MemberNeeded(ConflictError):
    """The membership change would leave the cluster without a working majority."""

    reason = "MEMBER_NEEDED"


class VersionTooLow(ConflictError):
    """The cluster version, or the release of a member, is too low for the operation."""

    reason = "VERSION_TOO_LOW"


class GroupExists(ConflictError):
    """A group with this name already exists."""

    reason = "GROUP_EXISTS"
    code = "ALREADY_EXISTS"


class ScheduleExists(ConflictError):
    """A schedule with this name already exists."""

    reason = "SCHEDULE_EXISTS"
    code = "ALREADY_EXISTS"


class ScheduleChanged(ConflictError):
    """The schedule has changed since it was read; read it and repeat the change."""

    reason = "SCHEDULE_CHANGED"
    code = "ABORTED"


class LeaseStale(ConflictError):
    """The lease has ended: stop working on the task, and do not retry."""

    reason = "LEASE_STALE"

    @property
    def task(self) -> str:
        """Tube and id of the task, like "emails/17"; empty if only the lease token is known."""
        tube, task_id = self.metadata.get("tube", ""), self.metadata.get("task_id", "")
        return f"{tube}/{task_id}" if tube else ""


class WrongState(ConflictError):
    """The state of the task does not allow this operation."""

    reason = "WRONG_STATE"

    @property
    def state(self) -> str:
        """Name of the current state of the task; empty if the server did not send it."""
        return self.metadata.get("state", "")


class TubeBusy(ConflictError):
    """The tube has TAKEN tasks or waiting consumers, or is not empty."""

    reason = "TUBE_BUSY"


class KindUnsuitable(ConflictError):
    """The kind of the tube does not support this operation."""

    reason = "KIND_UNSUITABLE"


class DriverMissing(ConflictError):
    """The node does not have the driver of this custom tube installed."""

    reason = "DRIVER_MISSING"


class TubeQuarantined(ConflictError):
    """The driver of this custom tube failed, so the tube neither accepts nor leases out tasks."""

    reason = "TUBE_QUARANTINED"


class DriverFailed(ConflictError):
    """The driver of this custom tube failed for a task of this put; nothing was put."""

    reason = "DRIVER_FAILED"


class FeedMismatch(ConflictError):
    """The position belongs to another change feed."""

    reason = "FEED_MISMATCH"
