"""A task group as callers see it."""

from __future__ import annotations

from enum import IntEnum

from taskraft_service.queue.entities.refusal import Refusal
from taskraft_service.queue.values import value


class GroupState(IntEnum):
    """State of a group; numbers are those of taskraft.v1.Group.State."""

    HELD = 1
    STARTED = 2
    ENDED = 3
    CANCELLED = 4


@value
class GroupTask:
    """A task that a group puts: its tube, and the producer's TaskSpec, opaque to the queue."""

    tube: str
    spec: bytes


@value
class GroupView:
    """A group as callers see it.

    Args:
        name: unique in the cluster.
        state: state of the group.
        open: number of tasks that have neither ended nor been buried.
        processed: number of acknowledged tasks.
        failed: number of tasks that failed, expired or are buried.
        cancelled: number of deleted tasks.
        end_task: task that is put when all tasks have ended.
        abort_task: task that is put instead if the group was cancelled or a task failed.
        only_if_processed: put the end task only if every task was acknowledged.
        created_ms: instant of the creation.
        ended_ms: instant at which the last task ended; 0: not yet.
        last_task_id: id of the end or abort task; 0: none was put.
        refusal: why the end or abort task was refused, or None.
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
