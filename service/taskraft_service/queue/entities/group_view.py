"""Show a task group to callers."""

from __future__ import annotations

from enum import IntEnum

from taskraft_service.queue.entities.refusal import Refusal
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
