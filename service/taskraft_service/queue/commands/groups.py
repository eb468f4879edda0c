"""Hold tasks until they are started together, and follow them by one task when all have ended."""

from __future__ import annotations

from enum import IntEnum

from taskraft_service.queue.commands.refusal import Refusal
from taskraft_service.queue.values import value


class GroupState(IntEnum):
    """Where in its life a group is; numbers are those of taskraft.v1.Group.State."""

    HELD = 1
    STARTED = 2
    ENDED = 3
    CANCELLED = 4


@value
class GroupTask:
    """A task that a group puts: tube, and the producer's TaskSpec, opaque to the queue."""

    tube: str
    spec: bytes


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
class GroupView:
    """A group as it is shown.

    Args:
        name: unique in the cluster.
        state: where in its life it is.
        open: tasks that have neither ended nor been buried.
        processed: tasks that were acknowledged.
        failed: tasks that failed, expired or are buried.
        cancelled: tasks that were deleted.
        end_task: put when all tasks have ended.
        abort_task: put instead.
        only_if_processed: when the end task is put.
        created_ms: when it was created.
        ended_ms: when its last task ended; 0: not yet.
        last_task_id: the end or abort task; 0: none was put.
        refusal: why that one could not be put; None: it could, or there was none.
    """

    name: str
    state: GroupState
    open: int
    processed: int
    failed: int
    cancelled: int
    end_task: GroupTask | None
    abort_task: GroupTask | None
    only_if_processed: bool
    created_ms: int
    ended_ms: int
    last_task_id: int
    refusal: Refusal | None = None


@value
class GroupResult:
    """The group as it is now."""

    group: GroupView
