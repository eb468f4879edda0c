"""Errors of requests that name something that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft.errors._taskraft_error import TaskraftError

if TYPE_CHECKING:
    from typing import Self


class NotFoundError(TaskraftError):
    """The request names something that does not exist."""

    code = "NOT_FOUND"


class TubeNotFound(NotFoundError):
    """No tube has this name."""

    reason = "TUBE_NOT_FOUND"

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the error for a name, with the text of the server."""
        return cls(f"no tube is called {name!r}", metadata={"tube": name})


class TaskNotFound(NotFoundError):
    """The tube has no task with this id or key; it never existed or was removed."""

    reason = "TASK_NOT_FOUND"


class SessionNotFound(NotFoundError):
    """The session was never opened, was closed, or has expired."""

    reason = "SESSION_NOT_FOUND"


class GroupNotFound(NotFoundError):
    """No group has this name."""

    reason = "GROUP_NOT_FOUND"


class ScheduleNotFound(NotFoundError):
    """No schedule has this name."""

    reason = "SCHEDULE_NOT_FOUND"


class MemberNotFound(NotFoundError):
    """No member of the cluster has this name or id."""

    reason = "MEMBER_NOT_FOUND"


class DependencyNotFound(NotFoundError):
    """The new task depends on a task that does not exist or was removed."""

    reason = "DEPENDENCY_NOT_FOUND"


class BulkSweepNotFound(NotFoundError):
    """No bulk sweep has this number, or the caller may not read its tube."""

    reason = "BULK_SWEEP_NOT_FOUND"


class SnapshotNotFound(NotFoundError):
    """The node does not keep this snapshot of the cluster any longer."""

    reason = "SNAPSHOT_NOT_FOUND"
