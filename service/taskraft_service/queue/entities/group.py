"""Define task groups: their state, their numbers of tasks by outcome, and their public view."""

from __future__ import annotations

from enum import IntEnum

from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_state import OPEN, State, TaskOutcome
from taskraft_service.queue.store.indexes import FIRST, SetMember
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
        owner: principal that has created the group; empty: not known.
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
    owner: str = ""


class TaskGroup:
    """A group.

    ``sweeping``: a start or a cancellation is scanning the members in steps; ``cursor`` is the last
    member that was processed.
    """

    __slots__ = (
        "abort_task",
        "cancelled",
        "created_ms",
        "cursor",
        "end_task",
        "ended_ms",
        "failed",
        "last_task_id",
        "name",
        "number",
        "only_if_processed",
        "open",
        "owner",
        "processed",
        "refusal",
        "revoke",
        "state",
        "sweeping",
    )

    def __init__(self, number: int, name: str, created_ms: int, owner: str = "") -> None:
        """Create a group without tasks."""
        self.number = number
        self.name = name
        self.owner = owner
        self.state = GroupState.HELD
        self.open = self.processed = self.failed = self.cancelled = 0
        self.end_task: GroupTask | None = None
        self.abort_task: GroupTask | None = None
        self.only_if_processed = False
        self.created_ms = created_ms
        self.ended_ms = 0
        self.last_task_id = 0
        self.refusal: Refusal | None = None
        self.revoke = False
        self.sweeping = False
        self.cursor: SetMember = FIRST

    @property
    def has_ended(self) -> bool:
        """Return whether the group has ended and can no longer change."""
        return self.ended_ms > 0

    def count(self, state: State, outcome: TaskOutcome, tasks: int) -> None:
        """Add tasks to the number of an outcome, or (negative) subtract them."""
        if state in OPEN:
            self.open += tasks
        elif outcome is TaskOutcome.PROCESSED:
            self.processed += tasks
        elif outcome in (TaskOutcome.DELETED, TaskOutcome.DEPENDENCY_FAILED):
            self.cancelled += tasks
        else:
            self.failed += tasks

    def view(self) -> GroupView:
        """Return the group as callers see it."""
        return GroupView(
            self.name,
            self.state,
            self.open,
            self.processed,
            self.failed,
            self.cancelled,
            self.end_task,
            self.abort_task,
            self.only_if_processed,
            self.created_ms,
            self.ended_ms,
            self.last_task_id,
            self.refusal,
            self.owner,
        )


def wrong_state(group: TaskGroup) -> Refusal:
    """Return the refusal of an operation that the state of the group does not allow."""
    return Refusal(
        Reason.WRONG_STATE,
        f"group {group.name!r} is {group.state.name}",
        {"group": group.name, "state": group.state.name},
    )
