"""Open the state of a queue on a store: small records and leased tasks; the backlog is not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from taskraft_service.queue.codecs.settings_codec import read_settings
from taskraft_service.queue.entities.life_cycle import TAKEN
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_update import Editor, unchanged
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.collect import FORMAT, META_HEAD
from taskraft_service.queue.persistence.task_writes import HOLDER
from taskraft_service.queue.state.queue_state import BEGINNING, CounterOrigin, QueueState
from taskraft_service.queue.state.timers import Timers
from taskraft_service.queue.state.tube_codec import read_tube
from taskraft_service.queue.store.keys import LEASE, META, TUBE, prefix_stop
from taskraft_service.queue.store.store import Store
from taskraft_service.queue.transitions.endings import note_surplus


class UnknownFormatError(Exception):
    """The store was written by another version: start that version, or an empty directory."""


def stored_index(store: Store) -> int:
    """Return the index of the entry whose state a store holds, 0 if it is a new one."""
    meta = store.get(META)
    return 0 if meta is None else int(META_HEAD.unpack_from(meta)[1])


def bare_task(body: bytes) -> NewTask:
    """Return a task of a body that says nothing about it."""
    return NewTask(body, len(body))


def open_state(
    store: Store,
    limits: Limits,
    new_task: Callable[[bytes], NewTask] = bare_task,
    editor: Editor = unchanged,
    drivers: Mapping[str, TubeDriver] = NO_DRIVERS,
    origin: CounterOrigin = BEGINNING,
) -> QueueState:
    """Return the state in a store; a store without a meta record is new.

    Raises:
        UnknownFormatError: the store has another format.
        DriverMissing: a tube needs a driver that this node does not have.
    """
    state = QueueState(store, limits, new_task, editor, drivers, origin)
    meta = store.get(META)
    if meta is None:
        return state
    if meta[0] != FORMAT:
        raise UnknownFormatError(f"the store has format {meta[0]}, this version reads {FORMAT}")
    _open_meta(state, meta)
    for _, record in store.scan(TUBE, prefix_stop(TUBE)):
        tube = read_tube(record, store, limits)
        state.tubes.admit(tube)
        note_surplus(state, tube)
    state.tubes.totals.restore()
    state.sessions.restore(store)
    state.consumers.restore(store)
    state.schedules.restore(store)
    state.groups.restore(store)
    state.timers = Timers(store, limits, stored=True)
    _open_leases(state)
    return state


def _open_meta(state: QueueState, meta: bytes) -> None:
    """Take over what the meta record says; ``collect`` wrote its parts in the same order."""
    (
        _,
        state.index,
        state.now_ms,
        state.token,
        state.tubes.number,
        state.sessions.number,
    ) = META_HEAD.unpack_from(meta)
    at = META_HEAD.size
    at = state.removals.restore_meta(meta, at, state.store, state.limits)
    state.settings, at = read_settings(meta, at)
    at = state.requests.restore(meta, at)
    at = state.feed.restore(meta, at)
    at = state.groups.restore_meta(meta, at)
    at = state.failures.restore_meta(meta, at)
    at = state.dependents.restore_meta(meta, at)
    assert at == len(meta)


def _open_leases(state: QueueState) -> None:
    """Bring all taken tasks into memory, in order of their tokens."""
    for _, holder in state.store.scan(LEASE, prefix_stop(LEASE)):
        number, task_id = HOLDER.unpack(holder)
        tube = state.tubes.by_number.get(number)
        if tube is None:
            continue  # of a tube that is being cleared away: the lease is stale
        task = state.find(tube, task_id)
        assert task is not None
        assert task.state is TAKEN
        tube.tasks[task_id] = task
        tube.ready.reopen(task)
        state.resident_bytes += len(task.body or b"")
        state.leases[task.token] = task
        if task.session is not None:
            task.session.held[task.token] = task
