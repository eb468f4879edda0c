"""Open a ledger on a store: what is small and what is leased; the backlog stays where it is."""

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


def open_ledger(
    store: Store,
    limits: Limits,
    new_task: Callable[[bytes], NewTask] = bare_task,
    editor: Editor = unchanged,
    drivers: Mapping[str, TubeDriver] = NO_DRIVERS,
    origin: CounterOrigin = BEGINNING,
) -> QueueState:
    """Return the ledger that a store holds; a store without a meta record is a new one.

    Raises:
        UnknownFormatError: the store has another format.
        DriverMissing: a tube needs a driver that this node does not have.
    """
    ledger = QueueState(store, limits, new_task, editor, drivers, origin)
    meta = store.get(META)
    if meta is None:
        return ledger
    if meta[0] != FORMAT:
        raise UnknownFormatError(f"the store has format {meta[0]}, this version reads {FORMAT}")
    _open_meta(ledger, meta)
    for _, record in store.scan(TUBE, prefix_stop(TUBE)):
        tube = read_tube(record, store, limits)
        ledger.tubes.admit(tube)
        note_surplus(ledger, tube)
    ledger.tubes.totals.restore()
    ledger.sessions.restore(store)
    ledger.consumers.restore(store)
    ledger.schedules.restore(store)
    ledger.groups.restore(store)
    ledger.timers = Timers(store, limits, stored=True)
    _open_leases(ledger)
    return ledger


def _open_meta(ledger: QueueState, meta: bytes) -> None:
    """Take over what the meta record says; ``collect`` wrote its parts in the same order."""
    (
        _,
        ledger.index,
        ledger.now_ms,
        ledger.token,
        ledger.tubes.number,
        ledger.sessions.number,
    ) = META_HEAD.unpack_from(meta)
    at = META_HEAD.size
    at = ledger.removals.restore_meta(meta, at, ledger.store, ledger.limits)
    ledger.settings, at = read_settings(meta, at)
    at = ledger.requests.restore(meta, at)
    at = ledger.feed.restore(meta, at)
    at = ledger.groups.restore_meta(meta, at)
    at = ledger.failures.restore_meta(meta, at)
    at = ledger.dependents.restore_meta(meta, at)
    assert at == len(meta)


def _open_leases(ledger: QueueState) -> None:
    """Bring all taken tasks into memory, in order of their tokens."""
    for _, holder in ledger.store.scan(LEASE, prefix_stop(LEASE)):
        number, task_id = HOLDER.unpack(holder)
        tube = ledger.tubes.by_number.get(number)
        if tube is None:
            continue  # of a tube that is being cleared away: the lease is stale
        task = ledger.find(tube, task_id)
        assert task is not None
        assert task.state is TAKEN
        tube.tasks[task_id] = task
        tube.ready.reopen(task)
        ledger.resident_bytes += len(task.body or b"")
        ledger.leases[task.token] = task
        if task.session is not None:
            task.session.held[task.token] = task
