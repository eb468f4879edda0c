"""What is named in a call and does not exist."""

from __future__ import annotations

from taskraft.errors._taskraft_error import TaskraftError


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
