"""A task group in the core: its state, and the numbers of its tasks by outcome."""

from __future__ import annotations

from taskraft_service.queue.entities.group_view import GroupState, GroupTask, GroupView
from taskraft_service.queue.entities.life_cycle import OPEN
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import State, TaskOutcome
from taskraft_service.queue.store.task_sets import FIRST, SetMember


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
        "processed",
        "refusal",
        "revoke",
        "state",
        "sweeping",
    )

    def __init__(self, number: int, name: str, created_ms: int) -> None:
        """Make a group without tasks."""
        self.number = number
        self.name = name
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
        """Return whether the group cannot change any more."""
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
        )


def wrong_state(group: TaskGroup) -> Refusal:
    """Return the refusal of an operation that the state of the group does not allow."""
    return Refusal(
        Reason.WRONG_STATE,
        f"group {group.name!r} is {group.state.name}",
        {"group": group.name, "state": group.state.name},
    )
