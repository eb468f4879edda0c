"""Write what the store does not know of tasks: records, contents, places and timers."""

from __future__ import annotations

from struct import Struct
from typing import Final

from taskraft_service.queue.codecs.task_codec import CURRENT, NOTHING, write_task
from taskraft_service.queue.entities.life_cycle import READY, TAKEN
from taskraft_service.queue.entities.task import (
    BODY_INLINE_BYTES_MAX,
    QueueTask,
    Stored,
    StoredPosition,
    place_key,
    typed_key,
)
from taskraft_service.queue.store.keys import body_key, task_key, timer_key
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.store.store import Write

HOLDER: Final = Struct(">IQ")
"""Value of a lease: tube and task."""


class TaskWrites:
    """The writes of many tasks, apart by the kinds of their keys.

    No key is in it twice, so their order is free. A store whose buffer is a skip list finds the
    place of a key beside the one before it where that is its neighbour: records and places that
    alternate cost RocksDB nearly twice as much.
    """

    __slots__ = ("_bodies", "_places", "_records", "_timers")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._records: list[Write] = []
        self._bodies: list[Write] = []
        self._places: list[Write] = []
        self._timers: list[Write] = []

    def append_to(self, writes: list[Write]) -> None:
        """Append all, kind by kind, to the writes of a batch."""
        writes += self._records
        writes += self._bodies
        writes += self._places
        writes += self._timers

    def add(self, task: QueueTask) -> None:
        """Write a task's record, and of its other keys those that differ from what is stored."""
        number, task_id, body, written = task.tube.number, task.id, task.body, task.written
        where = (task.state, task.order, task.token, task.subqueue, task.type)
        timer = task.timer
        is_apart = body is None or len(body) > BODY_INLINE_BYTES_MAX
        self._records.append((task_key(number, task_id), write_task(task)))
        if written is None:
            before = old_timer = None
            stored = NOTHING
        else:
            before, old_timer, stored = written
        if is_apart or stored is not NOTHING:
            self._add_body(task, stored, is_apart=is_apart)
        if before is None and where[0] is READY and not where[4]:
            self._places.append((place_key(task.tube, where), b""))
        elif where != before:
            self._add_places(task, before, where)
        if timer != old_timer:
            self._add_timer(old_timer, timer)
        task.written = (where, timer, CURRENT if is_apart else NOTHING)

    def _add_body(self, task: QueueTask, stored: Stored, *, is_apart: bool) -> None:
        """Bring a content under its own key up to date, or delete it where it has become short."""
        if is_apart and stored is CURRENT:
            return
        assert task.body is not None
        content = task.body if is_apart else None
        self._bodies.append((body_key(task.tube.number, task.id), content))

    def _add_places(
        self, task: QueueTask, before: StoredPosition | None, where: StoredPosition
    ) -> None:
        """Write the place (or lease) of a task and its place by type, as far as they are new."""
        tube, places = task.tube, self._places
        old, new = b"" if before is None else place_key(tube, before), place_key(tube, where)
        if new != old:
            if old:
                places.append((old, None))
            if new:
                is_lease = task.state is TAKEN
                places.append((new, HOLDER.pack(tube.number, task.id) if is_lease else b""))
        old, new = b"" if before is None else typed_key(tube, before), typed_key(tube, where)
        if new != old:
            if old:
                places.append((old, None))
            if new:
                places.append((new, b""))

    def _add_timer(self, before: OrderKey | None, timer: OrderKey | None) -> None:
        """Write the deadline of a task in the place of the one that it had."""
        if before is not None:
            self._timers.append((timer_key(before), None))
        if timer is not None:
            self._timers.append((timer_key(timer), b""))
