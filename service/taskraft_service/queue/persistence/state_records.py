"""Write the queue state to the store, load it from there, and hash it to compare replicas.

The three walk over the same registries. ``collect`` writes the changes since its last call,
``open_state`` loads small records and leased tasks but not the backlog, and ``digest_of`` reads
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b

from taskraft_service.queue.codecs.task_codec import write_task
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.task_state import READY, TAKEN
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver
from taskraft_service.queue.feed.change_feed import low_and_high
from taskraft_service.queue.feed.feed_consumers import CONSUMER_RECORD
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.meta_record import REQUEST_NUMBERS, restore_meta, write_meta
from taskraft_service.queue.persistence.task_writes import HOLDER, collect_tasks
from taskraft_service.queue.state.queue_state import (
    BEGINNING,
    CounterOrigin,
    Editor,
    QueueState,
    unchanged,
)
from taskraft_service.queue.state.schedule_registry import SCHEDULE_RECORD
from taskraft_service.queue.state.session_registry import SESSION_RECORD
from taskraft_service.queue.state.timers import Timers, write_timer
from taskraft_service.queue.state.tube_codec import read_tube, write_tube
from taskraft_service.queue.store.keys import LEASE, META, TUBE, prefix_stop, tube_key
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.transitions.endings import note_surplus


def collect(state: QueueState) -> list[Write]:
    """Return the current values of the keys changed since the last call, and the meta record."""
    writes: list[Write] = []
    collect_tasks(state, writes)
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
    writes.append((META, write_meta(state)))
    return writes


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
    restore_meta(state, meta)
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
            task.session.held[task.token] = None


def digest_of(state: QueueState) -> bytes:
    """Return a hash of the whole state; replicas with the same applied index have the same hash.

    Reads the whole store, including the backlog and the events of the change feed.
    """
    whole = blake2b(digest_size=16)
    for part in _parts(state):
        whole.update(len(part).to_bytes(4, "big"))
        whole.update(part)
    for partition, (low, high) in enumerate(low_and_high(state.feed)):
        for seq, event in state.feed.events(partition, low, high):
            whole.update(repr((partition, seq, *event)).encode())
    return whole.digest()


def _parts(state: QueueState) -> Iterator[bytes]:
    numbers = (state.index, state.now_ms, state.token, state.tubes.number)
    yield repr((numbers, state.sessions.number, state.feed.feed_id)).encode()
    yield repr((state.wall_offset_ms, state.event_floor_ms)).encode()
    yield repr(low_and_high(state.feed)).encode()
    for number, (tube, next_id) in state.removals.items():
        yield repr((number, tube.name, next_id)).encode()
        for task in state.tasks(tube, next_id - 1):
            # Do not hash the record: it may name an ended session, unlike the task in memory.
            yield repr((task.id, task.state, task.attempt)).encode()
    for _, tube in sorted(state.tubes.items()):
        yield write_tube(tube)
        yield from tube.subqueue_rates.digest_parts(state.now_ms)
        for task in state.tasks(tube):
            yield task.id.to_bytes(8, "big") + write_task(task)
            yield state.body(task)
    for _, session in sorted(state.sessions.items()):
        yield SESSION_RECORD.write(session)
        yield repr(list(session.held)).encode()
    yield repr(list(state.leases)).encode()
    yield from state.failures.digest_parts()
    yield from (CONSUMER_RECORD.write(consumer) for consumer in state.consumers)
    yield from (SCHEDULE_RECORD.write(schedule) for schedule in state.schedules)
    yield from state.groups.digest_parts()
    yield from state.dependents.digest_parts()
    for place, task_id in state.unique_keys.items():
        yield place + task_id.to_bytes(8, "big")
    yield REQUEST_NUMBERS.write(state.requests)
    for request_id, answer in sorted(state.requests.items()):
        yield request_id.encode() + answer
