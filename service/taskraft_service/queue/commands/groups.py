"""Hold tasks until they are started together, and follow them by one task when all have ended."""

from __future__ import annotations

from taskraft_service.queue.entities.group_view import GroupTask, GroupView
from taskraft_service.queue.values import value


@value
class CreateGroup:
    """Create a group. Answer: ``GroupResult``.

    Args:
        name: unique in the cluster.
        end_task: put when all tasks have ended.
        abort_task: put instead where the group was cancelled, or not all was well.
        only_if_processed: the end task is put only if every task was acknowledged.
        request_id: makes a retry safe.
        request_hash: tells a repetition from another request.
    """

    name: str
    end_task: GroupTask | None = None
    abort_task: GroupTask | None = None
    only_if_processed: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class StartGroup:
    """Let the tasks of a group go, a bounded number per entry. Answer: ``GroupResult``."""

    name: str
    request_id: str = ""
    request_hash: int = 0


@value
class CancelGroup:
    """Remove the waiting tasks of a group, a bounded number per entry. Answer: ``GroupResult``.

    With ``revoke`` the taken ones too; otherwise their holders are asked to stop.
    """

    name: str
    revoke: bool = False
    request_id: str = ""
    request_hash: int = 0


@value
class GroupResult:
    """The group as it is now."""

    group: GroupView
