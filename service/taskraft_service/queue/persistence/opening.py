"""Load the queue state from a store: small records and leased tasks, but not the backlog."""

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
    """Report a store in the format of another version.

    The operator must start the matching version or use an empty data directory.
    """


def stored_index(store: Store) -> int:
    """Return the applied index of the state in a store; 0 for an empty store."""
    meta = store.get(META)
    return 0 if meta is None else int(META_HEAD.unpack_from(meta)[1])


def bare_task(body: bytes) -> NewTask:
    """Return a new task with a body and default attributes."""
    return NewTask(body, len(body))


def open_state(
    store: Store,
    limits: Limits,
    new_task: Callable[[bytes], NewTask] = bare_task,
    editor: Editor = unchanged,
    drivers: Mapping[str, TubeDriver] = NO_DRIVERS,
    origin: CounterOrigin = BEGINNING,
) -> QueueState:
    """Return the state in a store; a store without a meta record gives an empty state.

    Raises:
        UnknownFormatError: the store has another format.
        TubeDriverMissing: a tube needs a driver that is not installed on this node.
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
    """Restore the state from the meta record, in the order in which ``collect`` writes it."""
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
    """Load all taken tasks into memory, in order of their lease tokens."""
    for _, holder in state.store.scan(LEASE, prefix_stop(LEASE)):
        number, task_id = HOLDER.unpack(holder)
        tube = state.tubes.by_number.get(number)
        if tube is None:
            continue  # the tube was truncated or dropped, so the lease is stale
        task = state.find(tube, task_id)
        assert task is not None
        assert task.state is TAKEN
        tube.tasks[task_id] = task
        tube.ready.reopen(task)
        state.resident_bytes += len(task.body or b"")
        state.leases[task.token] = task
        if task.session is not None:
            task.session.held[task.token] = task
