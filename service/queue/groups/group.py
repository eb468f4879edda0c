"""Hold the groups, count the fates of their tasks, and write them as records."""

from __future__ import annotations

from heapq import heappush
from struct import Struct
from typing import TYPE_CHECKING, Final

from service.queue.commands import (
    GroupState,
    GroupTask,
    GroupView,
    Outcome,
    Reason,
    Refusal,
    State,
)
from service.queue.keys import GROUP, MEMBER, group_key, prefix_stop
from service.queue.life_cycle import DELAYED, FINISHED, GONE, HELD, READY, TAKEN, EventKind
from service.queue.tasks.extras_codec import read_texts, write_texts
from service.queue.tasks.members import FIRST, Member, Members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.queue.store import Store, Write
    from service.queue.tasks.task import Task

_record: Final = Struct(">QBBQQQQqqQBHIQ")
_number: Final = Struct(">Q")
_HAS_END: Final = 1
_HAS_ABORT: Final = 2
_ONLY_IF_PROCESSED: Final = 4
_REVOKE: Final = 8
_SWEEPING: Final = 16
_TEXTS: Final = 6

OPEN: Final = (READY, DELAYED, TAKEN, HELD)
"""States of a task that has neither ended nor been buried."""


_JOINABLE: Final = (GroupState.HELD, GroupState.STARTED)


class Group:
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
        self.cursor: Member = FIRST

    @property
    def has_ended(self) -> bool:
        """Tell whether nothing changes any more."""
        return self.ended_ms > 0

    def count(self, state: State, outcome: Outcome, tasks: int) -> None:
        """Count tasks that came to a fate, or (negative) left it."""
        if state in OPEN:
            self.open += tasks
        elif outcome is Outcome.PROCESSED:
            self.processed += tasks
        elif outcome in (Outcome.DELETED, Outcome.DEPENDENCY_FAILED):
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

    def record(self) -> bytes:
        """Return the group as it is written under its key."""
        end, abort, refusal = self.end_task, self.abort_task, self.refusal
        flags = (
            (_HAS_END if end is not None else 0)
            | (_HAS_ABORT if abort is not None else 0)
            | (_ONLY_IF_PROCESSED if self.only_if_processed else 0)
            | (_REVOKE if self.revoke else 0)
            | (_SWEEPING if self.sweeping else 0)
        )
        details = [text for pair in refusal.metadata.items() for text in pair] if refusal else []
        head = _record.pack(
            self.number,
            self.state,
            flags,
            self.open,
            self.processed,
            self.failed,
            self.cancelled,
            self.created_ms,
            self.ended_ms,
            self.last_task_id,
            refusal.reason if refusal is not None else 0,
            len(details),
            *self.cursor,
        )
        return head + write_texts(
            (
                self.name.encode(),
                end.tube.encode() if end is not None else b"",
                end.spec if end is not None else b"",
                abort.tube.encode() if abort is not None else b"",
                abort.spec if abort is not None else b"",
                refusal.message.encode() if refusal is not None else b"",
                *(text.encode() for text in details),
            )
        )


def read_group(record: bytes) -> Group:
    """Return the group of a record."""
    number, state, flags, *counts, reason, details, tube, task = _record.unpack_from(record)
    texts, _ = read_texts(record, _record.size, _TEXTS + details)
    name, end_tube, end_spec, abort_tube, abort_spec, message = texts[:_TEXTS]
    group = Group(number, name.decode(), 0)
    group.state = GroupState(state)
    (
        group.open,
        group.processed,
        group.failed,
        group.cancelled,
        group.created_ms,
        group.ended_ms,
        group.last_task_id,
    ) = counts
    if flags & _HAS_END:
        group.end_task = GroupTask(end_tube.decode(), end_spec)
    if flags & _HAS_ABORT:
        group.abort_task = GroupTask(abort_tube.decode(), abort_spec)
    group.only_if_processed = bool(flags & _ONLY_IF_PROCESSED)
    group.revoke = bool(flags & _REVOKE)
    group.sweeping = bool(flags & _SWEEPING)
    group.cursor = (tube, task)
    if reason:
        pairs = [text.decode() for text in texts[_TEXTS:]]
        metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
        group.refusal = Refusal(Reason(reason), message.decode(), metadata)
    return group


def wrong_state(group: Group) -> Refusal:
    """Say that a group's state does not allow the operation."""
    return Refusal(
        Reason.WRONG_STATE,
        f"group {group.name!r} is {group.state.name}",
        {"group": group.name, "state": group.state.name},
    )


class Groups:
    """All groups by name, their members, and what has to be done about them.

    ``complete`` has the groups whose last open task may have ended since the last command,
    ``sweeps`` those that a start or a cancellation goes through, ``ended`` is a heap of those that
    wait to be forgotten, by end and number.
    """

    __slots__ = ("_by_name", "_dirty", "complete", "ended", "members", "number", "sweeps")

    def __init__(self, store: Store) -> None:
        """Begin with none."""
        self._by_name: dict[str, Group] = {}
        self._dirty: dict[str, None] = {}
        self.members = Members(store, MEMBER)
        self.number = 0
        self.complete: dict[int, Group] = {}
        self.sweeps: dict[int, Group] = {}
        self.ended: list[tuple[int, int, str]] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Group]:
        """Yield the groups in order of their names."""
        return (group for _, group in sorted(self._by_name.items()))

    def get(self, name: str) -> Group | None:
        """Return a group, or None."""
        return self._by_name.get(name)

    def find(self, name: str) -> Group | Refusal:
        """Return a group, or say that there is none."""
        group = self._by_name.get(name)
        if group is None:
            text = f"no group is called {name!r}"
            return Refusal(Reason.GROUP_NOT_FOUND, text, {"group": name})
        return group

    def refusal_to_join(self, name: str) -> Refusal | None:
        """Return why no new task can join a group, or None."""
        group = self.find(name)
        if isinstance(group, Refusal):
            return group
        return None if group.state in _JOINABLE else wrong_state(group)

    def add(self, group: Group) -> None:
        """Take in a new group."""
        self._by_name[group.name] = group
        self.touch(group)

    def touch(self, group: Group) -> None:
        """Note that a group differs from its record."""
        self._dirty[group.name] = None

    def remove(self, group: Group) -> None:
        """Forget a group that has ended; buried and kept tasks of it belong to none from now on."""
        del self._by_name[group.name]
        self.touch(group)

    # ------------------------------------------------------------------------------- the tasks

    def _counting(self, task: Task) -> Group | None:
        """Return the group that counts a task: its own, not a later one of that name; or None."""
        group = self._by_name.get(task.extras.group)
        if group is None or group.number != task.extras.group_number or group.has_ended:
            return None
        return group

    def holds(self, task: Task) -> bool:
        """Tell whether a task's group keeps it back: it waits for its start, or is cancelled."""
        group = self._counting(task)
        return group is not None and group.state is not GroupState.STARTED

    def came(self, task: Task) -> None:
        """Take note of a new task of a group, or of one that has come from another tube.

        A cancellation under way goes back for one that has come to where it has been already.
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

    def moved(self, task: Task, kind: EventKind, before: State, state: State) -> None:
        """Take note that a task of a group changed its state; its outcome is set.

        One that goes to another tube is counted there: it only changes its place.
        """
        group = self._counting(task)
        if group is None or (before in FINISHED and state is GONE):
            return
        outcome = task.extras.outcome
        if state is GONE and kind is EventKind.MOVE and outcome is Outcome.NONE:
            group.count(before, Outcome.FAILED, -1)
        else:
            known = Outcome.PROCESSED if before in FINISHED else Outcome.FAILED
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
        """Append what the store does not have yet to ``writes``."""
        for name in self._dirty:
            group = self._by_name.get(name)
            writes.append((group_key(name), group.record() if group is not None else None))
        self._dirty.clear()
        self.members.collect(writes)

    def meta(self) -> bytes:
        """Return the groups' part of the meta record."""
        return _number.pack(self.number)

    def restore_meta(self, record: bytes, at: int) -> int:
        """Take the groups' part of the meta record over; return where it ends."""
        (self.number,) = _number.unpack_from(record, at)
        return at + _number.size

    def restore(self, store: Store) -> None:
        """Read all groups; who has ended first is forgotten first."""
        for _, record in store.scan(GROUP, prefix_stop(GROUP)):
            group = read_group(record)
            self._by_name[group.name] = group
            if group.sweeping:
                self.sweeps[group.number] = group
            if group.has_ended:
                heappush(self.ended, (group.ended_ms, group.number, group.name))

    def digest_parts(self) -> Iterator[bytes]:
        """Yield everything that replicas must agree on."""
        yield repr((self.number, sorted(self.ended), sorted(self.sweeps))).encode()
        for group in self:
            yield group.record()
            yield repr(list(self.members.after(group.number, FIRST))).encode()
