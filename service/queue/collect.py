"""Collect what the store does not know yet, and let go of what memory need not hold."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from service.queue.deletions import delete_outside, delete_tasks
from service.queue.keys import (
    INSIDE_TUBES,
    META,
    session_key,
    timer_key,
    tube_key,
    tube_range,
)
from service.queue.life_cycle import GONE, READY, TAKEN
from service.queue.settings import write_settings
from service.queue.store import RangeDeletion
from service.queue.tasks.task_writes import TaskWrites
from service.queue.tubes.tube_codec import write_tube

if TYPE_CHECKING:
    from service.queue.ledger import Ledger
    from service.queue.sessions.session import Session
    from service.queue.store import Write
    from service.queue.tasks.task import Task
    from service.queue.tubes.tube import Tube

FORMAT: Final = 12
"""Version of everything in the store; a store of another version is refused."""

META_HEAD: Final = Struct(">BQqQIQI")
"""Format, applied index, clock, last token, last tube, last session, number of removals."""
REMOVAL: Final = Struct(">IQH")
"""Number of the old tube, id to go on from, bytes of its name; the name follows."""


def collect(ledger: Ledger) -> list[Write]:
    """Return the final values of the keys that changed since the last call, and the meta record."""
    writes: list[Write] = []
    _collect_tasks(ledger, writes)
    _collect_tubes(ledger, writes)
    _collect_sessions(ledger, writes)
    ledger.requests.collect(writes)
    ledger.consumers.collect(writes)
    ledger.schedules.collect(writes)
    ledger.groups.collect(writes)
    ledger.dependents.collect(writes)
    ledger.unique_keys.collect(writes)
    ledger.failures.collect(writes)
    ledger.feed.collect(writes)
    ledger.timers.flushed()
    writes.append((META, _meta(ledger)))
    return writes


def _collect_tasks(ledger: Ledger, writes: list[Write]) -> None:
    gone: list[Task] = []
    living = TaskWrites()
    add = living.add
    outside: list[Write] = []
    for task in ledger.dirty_tasks:
        task.dirty = False
        if task.state is not GONE:
            add(task)
            _let_go(ledger, task)
        elif task.written is not None:
            if _goes_alone(ledger, task):
                gone.append(task)
            else:
                delete_outside(task, outside)
            del task.tube.tasks[task.id]
    ledger.dirty_tasks.clear()
    living.append_to(writes)
    writes += outside
    delete_tasks(gone, writes)
    for number in ledger.cleared_tubes:
        writes.extend(RangeDeletion(*tube_range(prefix, number)) for prefix in INSIDE_TUBES)
    ledger.cleared_tubes.clear()


def _goes_alone(ledger: Ledger, task: Task) -> bool:
    """Tell whether a task that is gone must be deleted by itself, not as a part of its tube.

    Besides the tasks of living tubes those that had gone when their tube went: what is to be
    cleared away is found in the store, and they must not be found again.
    """
    number = task.tube.number
    if number in ledger.tubes_by_number:
        return True
    removal = ledger.removals.get(number)
    return removal is not None and task.id >= removal[1]


def _let_go(ledger: Ledger, task: Task) -> None:
    """Drop a task, or its content, from memory where the store can give it back soon enough."""
    tube = task.tube
    if tube.number not in ledger.tubes_by_number:
        ledger.evict(task)
    elif task.state is TAKEN:
        if task.is_body_apart and task.body is not None:
            ledger.resident_bytes -= len(task.body)
            task.body = None
    elif (
        task.state is not READY
        or ledger.resident_bytes > ledger.limits.resident_bytes_max
        or not tube.ready.is_head(task)
    ):
        ledger.evict(task)


def _collect_tubes(ledger: Ledger, writes: list[Write]) -> None:
    for tube in ledger.ended_tubes:
        writes.append((tube_key(tube.number), None))
        if tube.written:
            writes.append((tube.written, None))
    ledger.ended_tubes.clear()
    for tube in ledger.dirty_tubes:
        tube.dirty = False
        if tube.number in ledger.tubes_by_number:
            for entry in tube.ready.collect(writes, tube.counters.states[READY]):
                task = tube.tasks.get(entry[-1])
                if task is not None and task.state is READY and not tube.ready.is_head(task):
                    ledger.evict(task)
            tube.buried.flushed()
            writes.append((tube_key(tube.number), write_tube(tube)))
            _write_timer(tube, writes)
    ledger.used_tubes = [
        tube for tube in ledger.dirty_tubes if tube.number in ledger.tubes_by_number
    ]
    ledger.dirty_tubes.clear()


def _collect_sessions(ledger: Ledger, writes: list[Write]) -> None:
    for session in ledger.ended_sessions:
        if session.written is not None:
            writes.append((session_key(session.number), None))
            if session.written:
                writes.append((session.written, None))
    for session in ledger.dirty_sessions:
        session.dirty = False
        if session.number not in ledger.sessions_by_number:
            continue
        writes.append((session_key(session.number), session.record()))
        _write_timer(session, writes)
    ledger.ended_sessions.clear()
    ledger.dirty_sessions.clear()


def _meta(ledger: Ledger) -> bytes:
    parts = [
        META_HEAD.pack(
            FORMAT,
            ledger.index,
            ledger.now_ms,
            ledger.token,
            ledger.tube_number,
            ledger.session_number,
            len(ledger.removals),
        )
    ]
    for tube, next_id in ledger.removals.values():
        name = tube.name.encode()
        parts += (REMOVAL.pack(tube.number, next_id, len(name)), name)
    settings = write_settings(ledger.settings)
    parts += (settings, ledger.requests.record(), ledger.feed.record(), ledger.groups.meta())
    parts += (ledger.failures.meta(), ledger.dependents.meta())
    return b"".join(parts)


def _write_timer(holder: Tube | Session, writes: list[Write]) -> None:
    timer = timer_key(holder.timer) if holder.timer is not None else b""
    if timer != holder.written:
        if holder.written:
            writes.append((holder.written, None))
        if timer:
            writes.append((timer, b""))
        holder.written = timer
