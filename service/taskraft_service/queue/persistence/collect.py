"""Collect what the store does not know yet, and let go of what memory need not hold."""

from __future__ import annotations

from struct import Struct
from typing import Final

from taskraft_service.queue.codecs.settings_codec import write_settings
from taskraft_service.queue.entities.life_cycle import GONE, READY, TAKEN
from taskraft_service.queue.entities.task import QueueTask
from taskraft_service.queue.persistence.task_writes import TaskWrites, delete_outside, delete_tasks
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.timers import write_timer
from taskraft_service.queue.state.tube_codec import write_tube
from taskraft_service.queue.store.keys import META, tube_key
from taskraft_service.queue.store.store import Write

FORMAT: Final = 12
"""Version of everything in the store; a store of another version is refused."""

META_HEAD: Final = Struct(">BQqQIQ")
"""Format, applied index, clock, last token, last tube, last session."""


def collect(ledger: QueueState) -> list[Write]:
    """Return the final values of the keys that changed since the last call, and the meta record."""
    writes: list[Write] = []
    _collect_tasks(ledger, writes)
    _collect_tubes(ledger, writes)
    ledger.sessions.collect(writes)
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


def _collect_tasks(ledger: QueueState, writes: list[Write]) -> None:
    gone: list[QueueTask] = []
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
    ledger.removals.collect(writes)


def _goes_alone(ledger: QueueState, task: QueueTask) -> bool:
    """Tell whether a task that is gone must be deleted by itself, not as a part of its tube.

    Besides the tasks of living tubes those that had gone when their tube went: what is to be
    cleared away is found in the store, and they must not be found again.
    """
    number = task.tube.number
    if number in ledger.tubes.by_number:
        return True
    removal = ledger.removals.get(number)
    return removal is not None and task.id >= removal[1]


def _let_go(ledger: QueueState, task: QueueTask) -> None:
    """Drop a task, or its content, from memory where the store can give it back soon enough."""
    tube = task.tube
    if tube.number not in ledger.tubes.by_number:
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


def _collect_tubes(ledger: QueueState, writes: list[Write]) -> None:
    ledger.tubes.collect_ended(writes)
    for tube in ledger.tubes.fetch_changed():
        for entry in tube.ready.collect(writes, tube.counters.states[READY]):
            task = tube.tasks.get(entry[-1])
            if task is not None and task.state is READY and not tube.ready.is_head(task):
                ledger.evict(task)
        tube.buried.flushed()
        writes.append((tube_key(tube.number), write_tube(tube)))
        write_timer(tube, writes)


def _meta(ledger: QueueState) -> bytes:
    head = META_HEAD.pack(
        FORMAT,
        ledger.index,
        ledger.now_ms,
        ledger.token,
        ledger.tubes.number,
        ledger.sessions.number,
    )
    parts = (
        ledger.removals.meta(),
        write_settings(ledger.settings),
        ledger.requests.record(),
        ledger.feed.record(),
        ledger.groups.meta(),
        ledger.failures.meta(),
        ledger.dependents.meta(),
    )
    return b"".join((head, *parts))
