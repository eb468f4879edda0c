"""Collect the writes for changed tasks and the deletions for tasks that no longer exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from struct import Struct
from typing import Final

from taskraft_service.queue.entities.task_codec import CURRENT, NOTHING, write_task
from taskraft_service.queue.entities.task_state import BURIED, GONE, READY, TAKEN, State
from taskraft_service.queue.entities.tube import (
    BODY_INLINE_BYTES_MAX,
    QueueTask,
    QueueTube,
    Stored,
    StoredPosition,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.store.keys import (
    OUTSIDE_TUBES,
    body_key,
    buried_key,
    lease_key,
    ready_key,
    subqueue_prefix,
    task_key,
    timer_key,
    typed_prefix,
    waiting_key,
)
from taskraft_service.queue.store.ordered_index import OrderKey
from taskraft_service.queue.store.store import RangeDeletion, Write

HOLDER: Final = Struct(">IQ")
"""Value of a lease record: tube number and task id."""


STEP_TASKS: Final = 500
"""Number of tasks whose changes are collected in one step, in 1 to 3 ms."""


def collect_some_tasks(state: QueueState) -> Sequence[Write]:
    """Return the writes of the next changed tasks; ``collect_tasks`` returns all others.

    No entry may be applied between the two. Deletions are collected at the end.
    """
    tasks = state.dirty_tasks[:STEP_TASKS]
    del state.dirty_tasks[:STEP_TASKS]
    return _encode(state, tasks)


def collect_tasks(state: QueueState, writes: list[Write]) -> None:
    """Append the changes of all tasks to ``writes``, and evict tasks that takes do not need soon.

    Finished tubes are deleted after their last tasks.
    """
    writes += _encode(state, state.dirty_tasks)
    state.dirty_tasks.clear()
    state.fresh_tasks = 0
    gone: list[QueueTask] = []
    outside: list[Write] = []
    for task in state.collected_tasks:
        if task.state is not GONE:
            _let_go(state, task)
        elif task.written is not None:
            if _goes_alone(state, task):
                gone.append(task)
            else:
                delete_outside(task, outside)
            del task.tube.tasks[task.id]
    state.collected_tasks.clear()
    writes += outside
    delete_tasks(gone, writes)
    state.removals.collect(writes)


def _encode(state: QueueState, tasks: Sequence[QueueTask]) -> list[Write]:
    """Return the writes of the living tasks among some changed tasks."""
    living = TaskWrites()
    add = living.add
    for task in tasks:
        task.dirty = False
        if task.state is not GONE:
            add(task)
    state.collected_tasks += tasks
    writes: list[Write] = []
    living.append_to(writes)
    return writes


def _goes_alone(state: QueueState, task: QueueTask) -> bool:
    """Return whether all keys of a deleted task must be deleted one by one.

    True for a task of an existing tube. Also true for a task of a truncated or dropped tube that
    the cleanup has not reached, because the cleanup scans the store and must not find the task.
    """
    number = task.tube.number
    if number in state.tubes.by_number:
        return True
    removal = state.removals.get(number)
    return removal is not None and task.id >= removal[1]


def _let_go(state: QueueState, task: QueueTask) -> None:
    """Evict a task, or only its content, from memory unless a take may need it soon."""
    tube = task.tube
    if tube.number not in state.tubes.by_number:
        state.evict(task)
    elif task.state is TAKEN:
        if task.is_body_apart and task.body is not None:
            state.resident_bytes -= len(task.body)
            task.body = None
    elif (
        task.state is not READY
        or state.resident_bytes > state.limits.resident_bytes_max
        or not tube.ready.is_head(task)
    ):
        state.evict(task)


class TaskWrites:
    """Collect the writes of many tasks, grouped by the kind of key.

    Each key occurs once, so the order of the writes does not affect the result. The writes are
    grouped for speed, because RocksDB inserts adjacent keys faster into its skip list. Alternating
    records and order keys would take nearly twice as long.
    """

    __slots__ = ("_bodies", "_places", "_records", "_timers")

    def __init__(self) -> None:
        """Create an empty collection."""
        self._records: list[Write] = []
        self._bodies: list[Write] = []
        self._places: list[Write] = []
        self._timers: list[Write] = []

    def append_to(self, writes: list[Write]) -> None:
        """Append all writes to a batch, one kind of key after the other."""
        writes += self._records
        writes += self._bodies
        writes += self._places
        writes += self._timers

    def add(self, task: QueueTask) -> None:
        """Write the record of a task, and its other keys that differ from the stored keys."""
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
        """Write the body under its own key, or delete the key if the body is now inline."""
        if is_apart and stored is CURRENT:
            return
        assert task.body is not None
        content = task.body if is_apart else None
        self._bodies.append((body_key(task.tube.number, task.id), content))

    def _add_places(
        self, task: QueueTask, before: StoredPosition | None, where: StoredPosition
    ) -> None:
        """Write the keys of a task in its order (or its lease) and by type, if they changed."""
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
        """Replace the stored timer of a task; None: no timer."""
        if before is not None:
            self._timers.append((timer_key(before), None))
        if timer is not None:
            self._timers.append((timer_key(timer), b""))


NEIGHBOURS_MIN: Final = 32
"""Minimum number of adjacent keys to delete as a range, because each range slows down reads."""
_ID: Final = attrgetter("id")


def delete_tasks(gone: Iterable[QueueTask], writes: list[Write]) -> None:
    """Delete all keys of stored tasks that no longer exist."""
    by_tube: dict[QueueTube, list[QueueTask]] = {}
    for task in gone:
        by_tube.setdefault(task.tube, []).append(task)
    for tasks in by_tube.values():
        tasks.sort(key=_ID)
        first = 0
        for place, (before, after) in enumerate(pairwise(tasks), 1):
            if after.id - before.id > 1:
                _delete_neighbours(tasks[first:place], writes)
                first = place
        _delete_neighbours(tasks[first:], writes)


def delete_outside(task: QueueTask, writes: list[Write]) -> None:
    """Delete the keys of a task that are outside the key ranges of its tube."""
    assert task.written is not None
    where, timer, _ = task.written
    place = place_key(task.tube, where)
    if place[:1] in OUTSIDE_TUBES:
        writes.append((place, None))
    if timer is not None:
        writes.append((timer_key(timer), None))


def _delete_neighbours(tasks: Sequence[QueueTask], writes: list[Write]) -> None:
    """Delete all keys of tasks of one tube with consecutive task ids."""
    number, first_id = tasks[0].tube.number, tasks[0].id
    if len(tasks) >= NEIGHBOURS_MIN:
        end = task_key(number, first_id + len(tasks))
        writes.append(RangeDeletion(task_key(number, first_id), end))
    else:
        writes.extend((task_key(number, task.id), None) for task in tasks)
    first = 0
    line: tuple[State, int, int, str, str] | None = None
    for place, task in enumerate(tasks):
        assert task.written is not None
        (state, (lane, rank, _), _, subqueue, task_type), timer, content = task.written
        if timer is not None:
            writes.append((timer_key(timer), None))
        if content is not NOTHING:
            writes.append((body_key(number, task.id), None))
        before, line = line, (state, lane, rank, subqueue, task_type)
        if line != before and place > first:
            _delete_line(tasks[first:place], writes)
            first = place
    _delete_line(tasks[first:], writes)


def _delete_line(tasks: Sequence[QueueTask], writes: list[Write]) -> None:
    """Delete order keys of tasks with the same state, lane, rank, sub-queue and type.

    The task ids are consecutive, so the range contains no order key of another task.
    """
    tube, first = tasks[0].tube, tasks[0].written
    assert first is not None
    where = first[0]
    state, (lane, rank, task_id), token, subqueue, task_type = where
    ends_at = (state, (lane, rank, task_id + len(tasks)), token, subqueue, task_type)
    for key_of in (place_key, typed_key) if task_type else (place_key,):
        if state is READY and len(tasks) >= NEIGHBOURS_MIN:
            begin, end = key_of(tube, where), key_of(tube, ends_at)
            if begin:
                writes.append(RangeDeletion(begin, end))
            continue
        for task in tasks:
            assert task.written is not None
            key = key_of(tube, task.written[0])
            if key:
                writes.append((key, None))


def place_key(tube: QueueTube, where: StoredPosition) -> bytes:
    """Return the key of the task in its order, or of its lease; empty if there is no such key."""
    state, order, token, subqueue, _ = where
    if state is READY:
        if tube.has_subqueues:
            return waiting_key(subqueue_prefix(tube.number, subqueue), order)
        return ready_key(tube.number, order)
    if state is TAKEN:
        return lease_key(token)
    if state is BURIED:
        return buried_key(tube.number, (0, *order[1:]))
    return b""


def typed_key(tube: QueueTube, where: StoredPosition) -> bytes:
    """Return the key of a ready task in the order of its type; empty if the task has no type.

    Sub-queues write such keys for the tasks that they offer.
    """
    task_type = where[4]
    if not task_type or where[0] is not READY or tube.has_subqueues:
        return b""
    return waiting_key(typed_prefix(tube.number, task_type), where[1])
