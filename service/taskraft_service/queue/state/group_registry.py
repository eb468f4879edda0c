"""Hold all groups by name and count the outcomes of their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from taskraft_service.queue.entities.group import GroupState, GroupTask, TaskGroup, wrong_state
from taskraft_service.queue.entities.life_cycle import EventKind
from taskraft_service.queue.entities.owned_counts import OwnedCounts
from taskraft_service.queue.entities.refusal import (
    Reason,
    Refusal,
    flattened,
    kept_refusal,
    message_of,
    metadata_of,
    reason_of,
    unflattened,
)
from taskraft_service.queue.entities.task_state import FINISHED, GONE, OPEN, State, TaskOutcome
from taskraft_service.queue.entities.tube import QueueTask
from taskraft_service.queue.state.ended_groups import EndedGroups
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Blob, Flags, Number, Present, Size, Text, Texts
from taskraft_service.queue.store.indexes import FIRST, TaskSetIndex, set_member
from taskraft_service.queue.store.keys import GROUP, MEMBER, group_key, prefix_stop
from taskraft_service.queue.store.store import Store, Write


def _metadata(group: TaskGroup) -> Sequence[str]:
    return flattened(metadata_of(group))


def _refusal(reason: int, message: str, metadata: Sequence[str]) -> Refusal | None:
    return kept_refusal(reason, message, unflattened(metadata))


def _group(number: int, name: str, created_ms: int, **others: object) -> TaskGroup:
    group = TaskGroup(number, name, created_ms)
    for attribute, content in others.items():
        setattr(group, attribute, content)
    return group


GROUP_RECORD: Final = FieldTable(
    _group,
    Number("number", "Q"),
    Number("state", "B", GroupState),
    Flags(
        "B",
        Present("end_task"),
        Present("abort_task"),
        "only_if_processed",
        "revoke",
        "sweeping",
    ),
    Number("open", "Q"),
    Number("processed", "Q"),
    Number("failed", "Q"),
    Number("cancelled", "Q"),
    Number("created_ms", "q"),
    Number("ended_ms", "q"),
    Number("last_task_id", "Q"),
    Number("refusal.reason", "B", of=reason_of),
    Size("H", "refusal.metadata"),
    Number("cursor.tube", "I", of="cursor[0]"),
    Number("cursor.task_id", "Q", of="cursor[1]"),
    Text("name"),
    Text("end_task.tube"),
    Blob("end_task.spec"),
    Text("abort_task.tube"),
    Blob("abort_task.spec"),
    Text("refusal.message", of=message_of),
    Texts("refusal.metadata", of=_metadata),
    Text("owner", to_end=True),
    parts={
        "end_task": GroupTask,
        "abort_task": GroupTask,
        "cursor": set_member,
        "refusal": _refusal,
    },
)

JOINABLE: Final = (GroupState.HELD, GroupState.STARTED)
"""States in which a group accepts new tasks, and in which its end task can be replaced."""


class GroupRegistry:
    """All groups by name, their open tasks, and the groups with work to do.

    ``complete`` has the groups whose last open task may have ended since the last command.
    ``sweeps`` has the groups that are being started or cancelled in steps. ``owned`` counts all
    groups, also the ended ones.
    """

    __slots__ = ("_dirty", "by_name", "complete", "ended", "members", "number", "owned", "sweeps")

    def __init__(self, store: Store) -> None:
        """Start without groups."""
        self.by_name: dict[str, TaskGroup] = {}
        self._dirty: dict[str, None] = {}
        self.members = TaskSetIndex(store, MEMBER)
        self.number = 0
        self.complete: dict[int, TaskGroup] = {}
        self.sweeps: dict[int, TaskGroup] = {}
        self.ended = EndedGroups()
        self.owned = OwnedCounts()

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[TaskGroup]:
        """Yield the groups in order of their names."""
        return (self.by_name[name] for name in sorted(self.by_name))

    def get(self, name: str) -> TaskGroup | None:
        """Return a group, or None."""
        return self.by_name.get(name)

    def find(self, name: str) -> TaskGroup | Refusal:
        """Return a group, or a refusal."""
        group = self.by_name.get(name)
        if group is None:
            text = f"no group is called {name!r}"
            return Refusal(Reason.GROUP_NOT_FOUND, text, {"group": name})
        return group

    def refusal_to_join(self, name: str) -> Refusal | None:
        """Return why a new task cannot join a group, or None."""
        group = self.find(name)
        if isinstance(group, Refusal):
            return group
        return None if group.state in JOINABLE else wrong_state(group)

    def add(self, group: TaskGroup) -> None:
        """Add a new group."""
        self.by_name[group.name] = group
        self.owned.add(group.owner)
        self.touch(group)

    def touch(self, group: TaskGroup) -> None:
        """Mark a group as changed, so that its record is written."""
        self._dirty[group.name] = None

    def remove(self, group: TaskGroup) -> None:
        """Remove an ended group; its buried and kept tasks belong to no group from now on."""
        del self.by_name[group.name]
        self.ended.remove(group)
        self.owned.remove(group.owner)
        self.touch(group)

    # ------------------------------------------------------------------------------- the tasks

    def _counting(self, task: QueueTask) -> TaskGroup | None:
        """Return the unfinished group that counts a task, or None.

        A later group of the same name has another number and does not count the task.
        """
        group = self.by_name.get(task.extras.group)
        if group is None or group.number != task.extras.group_number or group.has_ended:
            return None
        return group

    def holds(self, task: QueueTask) -> bool:
        """Return whether the group of a task holds the task: it is not started, or is cancelled."""
        group = self._counting(task)
        return group is not None and group.state is not GroupState.STARTED

    def task_added(self, task: QueueTask) -> None:
        """Count a task that was put into its group, or that arrived from another tube.

        If a running cancellation has already scanned past the task's position, the scan cursor
        moves back to include the task.
        """
        group = self._counting(task)
        if group is None:
            return
        group.open += 1
        member = (task.tube.number, task.id)
        self.members.add(group.number, member)
        if group.sweeping and group.state is GroupState.CANCELLED and member < group.cursor:
            group.cursor = (member[0], member[1] - 1)
        self.touch(group)

    def task_changed(self, task: QueueTask, kind: EventKind, before: State, state: State) -> None:
        """Count the transition of a task of a group; the caller has already set the task's outcome.

        A task that moves to another tube stays in its group; ``task_added`` counts it there.
        """
        group = self._counting(task)
        if group is None or (before in FINISHED and state is GONE):
            return
        outcome = task.extras.outcome
        if state is GONE and kind is EventKind.MOVE and outcome is TaskOutcome.NONE:
            group.count(before, TaskOutcome.FAILED, -1)
        else:
            known = TaskOutcome.PROCESSED if before in FINISHED else TaskOutcome.FAILED
            group.count(before, known, -1)
            group.count(state, outcome, 1)
        member = (task.tube.number, task.id)
        if before in OPEN and state not in OPEN:
            self.members.discard(group.number, member)
        elif state in OPEN and before not in OPEN:
            self.members.add(group.number, member)
        if group.open == 0:
            self.complete[group.number] = group
        self.touch(group)

    # ------------------------------------------------------------------------------- the store

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for name in self._dirty:
            group = self.by_name.get(name)
            writes.append(
                (group_key(name), GROUP_RECORD.write(group) if group is not None else None)
            )
        self._dirty.clear()
        self.members.collect(writes)

    def restore(self, store: Store) -> None:
        """Read all groups from the store."""
        for _, record in store.scan(GROUP, prefix_stop(GROUP)):
            group, _ = GROUP_RECORD.read(record)
            self.by_name[group.name] = group
            self.owned.add(group.owner)
            if group.sweeping:
                self.sweeps[group.number] = group
            if group.has_ended:
                self.ended.add(group)

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the state that must be equal on all replicas."""
        yield repr((self.number, self.ended.in_order, sorted(self.sweeps))).encode()
        for group in self:
            yield GROUP_RECORD.write(group)
            yield repr(list(self.members.after(group.number, FIRST))).encode()
