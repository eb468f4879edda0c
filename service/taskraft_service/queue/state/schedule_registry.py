"""Define schedules, and hold them by name and by the task that each put last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from operator import itemgetter
from typing import Final

from taskraft_service.queue.entities.owned_counts import OwnedCounts
from taskraft_service.queue.entities.refusal import (
    Reason,
    Refusal,
    kept_refusal,
    message_of,
    metadata_of,
    reason_of,
)
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Blob, Items, Number, Size, Text
from taskraft_service.queue.store.indexes import SetMember, set_member
from taskraft_service.queue.store.keys import SCHEDULE, prefix_stop, schedule_key
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value


class Overlap(IntEnum):
    """Policy for a due time while the schedule's last task is open; values as in the API."""

    ALLOW = 1
    SKIP = 2
    CANCEL_BEFORE = 3


@value
class ScheduleSpec:
    """Definition of a schedule.

    Args:
        tube: tube into which the tasks are put.
        pattern: the times, opaque to the queue; a schedule with another pattern starts from now.
        overlap: policy for a due time while the last task is still open.
        paused: put no tasks.
        spec: the producer's TaskSpec as received, opaque to the queue.
        body: the client's message without the spec, stored for reads.
    """

    tube: str
    pattern: str
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False
    spec: bytes = b""
    body: bytes = b""

    @property
    def etag(self) -> str:
        """Tag of the definition: definitions with equal messages have equal tags."""
        digest = blake2b(self.body, digest_size=8)
        digest.update(blake2b(self.spec, digest_size=8).digest())
        return digest.hexdigest()


@value
class ScheduledTime:
    """A due time of a schedule; ``mark`` is appended to the spec, to tell the task its time."""

    at_ms: int
    mark: bytes = b""


@value
class ScheduleView:
    """A schedule as callers see it.

    Args:
        name: unique in the cluster.
        options: the definition.
        version: grows with each update.
        since_ms: instant of the creation, or of the end of the last pause.
        done_ms: instant up to which all scheduled times are done.
        next_ms: next scheduled time; 0: none.
        last_ms: last scheduled time for which a task was put; 0: none yet.
        last_task_id: id of that task.
        left_out: number of scheduled times without a task, because of a refusal or an overlap.
        refusal: why the last put was refused, or None.
        owner: principal that has created the schedule; empty: not known.
    """

    name: str
    options: ScheduleSpec
    version: int
    since_ms: int
    done_ms: int
    next_ms: int
    last_ms: int
    last_task_id: int
    left_out: int
    refusal: Refusal | None = None
    owner: str = ""


NO_TASK: Final[SetMember] = (0, 0)


class TaskSchedule:
    """A schedule.

    ``last_task_id`` is the id of its last task as it was put. ``last`` is the tube number and id of
    that task now. A tube gets another number when it is truncated, or dropped and created again, so
    ``last`` never refers to another task.
    """

    __slots__ = (
        "done_ms",
        "last",
        "last_ms",
        "last_task_id",
        "left_out",
        "name",
        "next_ms",
        "options",
        "owner",
        "refusal",
        "since_ms",
        "version",
    )

    def __init__(
        self, name: str, options: ScheduleSpec, wall_ms: int, next_ms: int, owner: str = ""
    ) -> None:
        """Make a schedule that has put nothing yet; all its times are in wall time."""
        self.name = name
        self.owner = owner
        self.options = options
        self.version = 1
        self.since_ms = wall_ms
        self.done_ms = wall_ms
        self.next_ms = next_ms
        self.last_ms = 0
        self.last_task_id = 0
        self.last: SetMember = NO_TASK
        self.left_out = 0
        self.refusal: Refusal | None = None

    def view(self) -> ScheduleView:
        """Return the schedule as a value."""
        return ScheduleView(
            self.name,
            self.options,
            self.version,
            self.since_ms,
            self.done_ms,
            self.next_ms,
            self.last_ms,
            self.last_task_id,
            self.left_out,
            self.refusal,
            self.owner,
        )


def _metadata(schedule: TaskSchedule) -> Sequence[tuple[str, str]]:
    return list(metadata_of(schedule).items())


def _refusal(reason: int, message: str, metadata: Sequence[tuple[str, str]]) -> Refusal | None:
    return kept_refusal(reason, message, dict(metadata))


def _schedule(
    name: str, options: ScheduleSpec, since_ms: int, next_ms: int, **others: object
) -> TaskSchedule:
    schedule = TaskSchedule(name, options, since_ms, next_ms)
    for attribute, content in others.items():
        setattr(schedule, attribute, content)
    return schedule


_METADATA: Final = FieldTable(
    lambda key, text: (key, text), Text("key", of=itemgetter(0)), Text("text", of=itemgetter(1))
)
SCHEDULE_RECORD: Final = FieldTable(
    _schedule,
    Number("version", "Q"),
    Number("since_ms", "q"),
    Number("done_ms", "q"),
    Number("next_ms", "q"),
    Number("last_ms", "q"),
    Number("last_task_id", "Q"),
    Number("last.tube", "Q", of="last[0]"),
    Number("last.task_id", "Q", of="last[1]"),
    Number("left_out", "Q"),
    Number("options.overlap", "B", Overlap),
    Number("options.paused", "B", bool),
    Number("refusal.reason", "B", of=reason_of),
    Size("H", "refusal.metadata"),
    Blob("options.spec"),
    Blob("options.body"),
    Text("name"),
    Text("options.tube"),
    Text("options.pattern"),
    Text("refusal.message", of=message_of),
    Items("refusal.metadata", _METADATA, of=_metadata),
    Text("owner", to_end=True),
    parts={"options": ScheduleSpec, "last": set_member, "refusal": _refusal},
)


class ScheduleRegistry:
    """All schedules by name and last task, and the schedules that differ from the store.

    ``changed`` has the names of the schedules that changed since the leader last fetched them; not
    replicated.
    """

    __slots__ = ("_by_last", "_by_name", "_dirty", "changed", "owned")

    def __init__(self) -> None:
        """Start without schedules."""
        self._by_name: dict[str, TaskSchedule] = {}
        self._by_last: dict[SetMember, list[TaskSchedule]] = {}
        """Several schedules can have the same last task, if a put met an existing unique key."""
        self._dirty: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self.owned = OwnedCounts()

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[TaskSchedule]:
        """Yield the schedules in order of their names."""
        return (self._by_name[name] for name in self.names())

    def names(self) -> list[str]:
        """Return the names of all schedules in order."""
        return sorted(self._by_name)

    def due_times(self) -> list[tuple[int, str]]:
        """Return the next time (wall time, in ms) and the name of each schedule that has one.

        Paused schedules are left out.
        """
        return [
            (schedule.next_ms, name)
            for name, schedule in self._by_name.items()
            if schedule.next_ms and not schedule.options.paused
        ]

    def get(self, name: str) -> TaskSchedule | None:
        """Return a schedule, or None."""
        return self._by_name.get(name)

    def find(self, name: str) -> TaskSchedule | Refusal:
        """Return a schedule, or a refusal."""
        found = self._by_name.get(name)
        if found is None:
            text = f"no schedule is called {name!r}"
            return Refusal(Reason.SCHEDULE_NOT_FOUND, text, {"schedule": name})
        return found

    def set(self, schedule: TaskSchedule) -> None:
        """Add a schedule, or mark it as changed."""
        if schedule.name not in self._by_name:
            self.owned.add(schedule.owner)
        self._by_name[schedule.name] = schedule
        self._note(schedule.name)

    def remove(self, schedule: TaskSchedule) -> None:
        """Remove a schedule."""
        del self._by_name[schedule.name]
        self.owned.remove(schedule.owner)
        self._leave(schedule)
        self._note(schedule.name)

    def set_last(self, schedule: TaskSchedule, task: SetMember) -> None:
        """Set the last task of a schedule."""
        self._leave(schedule)
        schedule.last = task
        self._by_last.setdefault(task, []).append(schedule)
        self._note(schedule.name)

    def follow(self, task: SetMember, moved: SetMember) -> None:
        """Record that a task was moved to another tube."""
        for schedule in self._by_last.get(task, ())[:]:
            self.set_last(schedule, moved)

    def _leave(self, schedule: TaskSchedule) -> None:
        """Forget the last task of a schedule."""
        others = self._by_last.get(schedule.last, [])
        if schedule in others:
            others.remove(schedule)
        if not others:
            self._by_last.pop(schedule.last, None)

    def _note(self, name: str) -> None:
        self._dirty[name] = None
        self.changed[name] = None

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        for name in self._dirty:
            schedule = self._by_name.get(name)
            record = SCHEDULE_RECORD.write(schedule) if schedule is not None else None
            writes.append((schedule_key(name), record))
        self._dirty.clear()

    def restore(self, store: Store) -> None:
        """Read all schedules from the store."""
        for _, record in store.scan(SCHEDULE, prefix_stop(SCHEDULE)):
            schedule, _ = SCHEDULE_RECORD.read(record)
            self._by_name[schedule.name] = schedule
            self.owned.add(schedule.owner)
            if schedule.last != NO_TASK:
                self._by_last.setdefault(schedule.last, []).append(schedule)
