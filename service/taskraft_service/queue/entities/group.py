"""Hold one group: its state, and the fates of its tasks by number."""

from __future__ import annotations

from taskraft_service.queue.entities.group_view import GroupState, GroupTask, GroupView
from taskraft_service.queue.entities.life_cycle import OPEN
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.entities.task_view import State, TaskOutcome
from taskraft_service.queue.store.task_sets import FIRST, SetMember


class TaskGroup:
    """A group.

    ``sweeping`` tells that a start or a cancellation goes through the members, in steps; ``cursor``
    is the last member that it has dealt with.
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
        """Tell whether nothing changes any more."""
        return self.ended_ms > 0

    def count(self, state: State, outcome: TaskOutcome, tasks: int) -> None:
        """Count tasks that came to a fate, or (negative) left it."""
        if state in OPEN:
            self.open += tasks
        elif outcome is TaskOutcome.PROCESSED:
            self.processed += tasks
        elif outcome in (TaskOutcome.DELETED, TaskOutcome.DEPENDENCY_FAILED):
            self.cancelled += tasks
        else:
            self.failed += tasks

    def view(self) -> GroupView:
        """Return the group as it is shown."""
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
    """Say that a group's state does not allow the operation."""
    return Refusal(
        Reason.WRONG_STATE,
        f"group {group.name!r} is {group.state.name}",
        {"group": group.name, "state": group.state.name},
    )
