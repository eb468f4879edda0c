"""Store the last failure of deleted tasks, by task id and by unique key.

When a task is deleted without having been processed, its last failure is stored. A lookup by unique
key finds the failure until a new task has the key (as in rsqueue). A lookup by task id finds the
failure until the failure is deleted: after ``failure_retention_ms``, or when more than
``failures_max`` failures are stored. Nothing is stored for processed tasks. Memory holds only
changes that are not written yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.task_state import State, TaskOutcome
from taskraft_service.queue.entities.task_view import Extras, Failure, TaskView
from taskraft_service.queue.entities.tube import QueueTask, QueueTube
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import Number, Size, Text, Texts
from taskraft_service.queue.store.keys import (
    FAILURE,
    failed_key_key,
    failed_task_key,
    failure_key,
    prefix_stop,
)
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.values import value

_serial: Final = Struct(">Q")


@value
class KeptFailure:
    """The failure of a deleted task; ``tube`` is the number of its tube."""

    tube: int
    task_id: int
    created_ms: int
    ended_ms: int
    attempt: int
    outcome: TaskOutcome
    fatal: bool
    type: str
    message: str
    key: tuple[str, ...]


FAILURE_RECORD: Final = FieldTable(
    KeptFailure,
    Number("tube", "I"),
    Number("task_id", "Q"),
    Number("created_ms", "Q"),
    Number("ended_ms", "Q"),
    Number("attempt", "I"),
    Number("outcome", "B", TaskOutcome),
    Number("fatal", "B", bool),
    Size("H", "key"),
    Text("type"),
    Text("message"),
    Texts("key"),
)


FAILURE_NUMBERS: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict, Number("first", "Q"), Number("following", "Q")
)


class FailureTable:
    """The stored failures, in the order in which the tasks ended.

    ``first`` is the number of the oldest failure, ``following`` the number of the next failure.
    """

    __slots__ = ("_fresh", "_oldest_ms", "_store", "first", "following")

    def __init__(self, store: Store) -> None:
        """Use the failures in ``store``; ``restore`` sets the numbers."""
        self._store = store
        self._fresh: dict[bytes, bytes | None] = {}
        self._oldest_ms: int | None = None
        self.first = 0
        self.following = 0

    def add(self, task: QueueTask, outcome: TaskOutcome, now_ms: int, limits: Limits) -> None:
        """Store the failure of a deleted task; delete the oldest failures if there are too many."""
        failure, key = task.extras.failure, task.extras.unique_key
        assert failure is not None
        kept = KeptFailure(
            task.tube.number,
            task.id,
            task.created_ms,
            now_ms,
            task.attempt,
            outcome,
            failure.fatal,
            failure.type,
            failure.message,
            key,
        )
        serial = _serial.pack(self.following)
        self._fresh[failure_key(self.following)] = FAILURE_RECORD.write(kept)
        self._fresh[failed_task_key(task.tube.number, task.id)] = serial
        if key:
            self._fresh[failed_key_key(task.tube.number, key)] = serial
        self.following += 1
        if self.following - self.first > limits.failures_max:
            self._forget_first()

    def begin_anew(self, tube: int, key: tuple[str, ...]) -> None:
        """Forget the failure of a unique key, because a new task has the key."""
        place = failed_key_key(tube, key)
        if self.first < self.following and self._get(place) is not None:
            self._fresh[place] = None

    def forget_old(self, now_ms: int, limits: Limits) -> None:
        """Delete the failures whose retention has ended; called once per entry."""
        for _ in range(limits.records_forgotten_max):
            if self.first == self.following:
                return
            if self._oldest_ms is None:
                self._oldest_ms = self._kept(self.first).ended_ms
            if self._oldest_ms + limits.failure_retention_ms > now_ms:
                return
            self._forget_first()

    def of_task(self, tube: QueueTube, task_id: int) -> TaskView | None:
        """Return a deleted task that failed, or None."""
        return self._view(tube, self._get(failed_task_key(tube.number, task_id)))

    def of_key(self, tube: QueueTube, key: tuple[str, ...]) -> TaskView | None:
        """Return the last task of a unique key if the task failed and is deleted, or None."""
        return self._view(tube, self._get(failed_key_key(tube.number, key)))

    def _get(self, key: bytes) -> bytes | None:
        if key in self._fresh:
            return self._fresh[key]
        return self._store.get(key)

    def _kept(self, serial: int) -> KeptFailure:
        record = self._get(failure_key(serial))
        assert record is not None, f"there is no failure {serial}"
        kept, _ = FAILURE_RECORD.read(record)
        return kept

    def _view(self, tube: QueueTube, serial: bytes | None) -> TaskView | None:
        """Return the view of a failed task, without its content."""
        if serial is None:
            return None
        kept = self._kept(*_serial.unpack(serial))
        extras = Extras(
            failure=Failure(kept.type, kept.message, kept.fatal),
            outcome=kept.outcome,
            unique_key=kept.key,
        )
        return TaskView(
            tube.name, kept.task_id, b"", State.GONE, 0, 0, kept.attempt, kept.created_ms,
            kept.ended_ms, 0, 0, "", 0, 0, 0, extras,
        )  # fmt: skip

    def _forget_first(self) -> None:
        kept, serial = self._kept(self.first), _serial.pack(self.first)
        self._fresh[failure_key(self.first)] = None
        self._fresh[failed_task_key(kept.tube, kept.task_id)] = None
        if kept.key and self._get(place := failed_key_key(kept.tube, kept.key)) == serial:
            self._fresh[place] = None
        self.first += 1
        self._oldest_ms = None

    # ------------------------------------------------------------------------------- the store

    def collect(self, writes: list[Write]) -> None:
        """Append the changes since the last call to ``writes``."""
        writes.extend(self._fresh.items())
        self._fresh.clear()

    def restore(self, first: int, following: int) -> None:
        """Set the numbers from the meta record."""
        self.first, self.following = first, following

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the state that must be equal on all replicas."""
        yield FAILURE_NUMBERS.write(self)
        known = dict(self._store.scan(FAILURE, prefix_stop(FAILURE)))
        for place, content in sorted((known | self._fresh).items()):
            if content is not None:
                yield place + content
