"""Collect the changes for the next batch of writes, and evict tasks from memory."""

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
"""Format version of the store; opening a store of another version fails."""

META_HEAD: Final = Struct(">BQqQIQ")
"""Format, applied index, clock in ms, last lease token, last tube number, last session number."""


def collect(state: QueueState) -> list[Write]:
    """Return the current values of the keys changed since the last call, and the meta record."""
    writes: list[Write] = []
    _collect_tasks(state, writes)
    _collect_tubes(state, writes)
    state.sessions.collect(writes)
    state.requests.collect(writes)
    state.consumers.collect(writes)
    state.schedules.collect(writes)
    state.groups.collect(writes)
    state.dependents.collect(writes)
    state.unique_keys.collect(writes)
    state.failures.collect(writes)
    state.feed.collect(writes)
    state.timers.flushed()
    writes.append((META, _meta(state)))
    return writes


def _collect_tasks(state: QueueState, writes: list[Write]) -> None:
    gone: list[QueueTask] = []
    living = TaskWrites()
    add = living.add
    outside: list[Write] = []
    for task in state.dirty_tasks:
        task.dirty = False
        if task.state is not GONE:
            add(task)
            _let_go(state, task)
        elif task.written is not None:
            if _goes_alone(state, task):
                gone.append(task)
            else:
                delete_outside(task, outside)
            del task.tube.tasks[task.id]
    state.dirty_tasks.clear()
    living.append_to(writes)
    writes += outside
    delete_tasks(gone, writes)
    state.removals.collect(writes)


def _goes_alone(state: QueueState, task: QueueTask) -> bool:
    """Return whether a deleted task needs its own deletions of all its keys.

    True for a task of an existing tube. Also true for a task of a truncated or dropped tube that
    the removal has not reached: the removal scans the store and must not find the task again.
    """
    number = task.tube.number
    if number in state.tubes.by_number:
        return True
    removal = state.removals.get(number)
    return removal is not None and task.id >= removal[1]


def _let_go(state: QueueState, task: QueueTask) -> None:
    """Evict a task or its content from memory, unless it may be needed soon."""
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


def _collect_tubes(state: QueueState, writes: list[Write]) -> None:
    state.tubes.collect_ended(writes)
    for tube in state.tubes.fetch_changed():
        for entry in tube.ready.collect(writes, tube.counters.states[READY]):
            task = tube.tasks.get(entry[-1])
            if task is not None and task.state is READY and not tube.ready.is_head(task):
                state.evict(task)
        tube.buried.flushed()
        writes.append((tube_key(tube.number), write_tube(tube)))
        write_timer(tube, writes)


def _meta(state: QueueState) -> bytes:
    head = META_HEAD.pack(
        FORMAT,
        state.index,
        state.now_ms,
        state.token,
        state.tubes.number,
        state.sessions.number,
    )
    parts = (
        state.removals.meta(),
        write_settings(state.settings),
        state.requests.record(),
        state.feed.record(),
        state.groups.meta(),
        state.failures.meta(),
        state.dependents.meta(),
    )
    return b"".join((head, *parts))
