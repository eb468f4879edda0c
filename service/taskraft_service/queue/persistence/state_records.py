"""Write the queue state to the store, load it from there, and hash it to compare replicas.

The meta record holds the numbers that belong to the whole queue.

Writing, loading and hashing visit the same registries. ``collect`` writes the changes since its
last call, ``open_state`` loads small records and leased tasks but not the backlog, and
``digest_of`` reads everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from hashlib import blake2b
from typing import Any, Final

from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.session import SESSION_RECORD
from taskraft_service.queue.entities.task_codec import write_task
from taskraft_service.queue.entities.task_state import READY, TAKEN
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver
from taskraft_service.queue.feed.change_feed import low_and_high
from taskraft_service.queue.feed.feed_consumers import write_consumer
from taskraft_service.queue.feed.feed_partition import PARTITION_NUMBERS
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.task_writes import HOLDER, collect_tasks
from taskraft_service.queue.state.cluster_version import ClusterVersionState
from taskraft_service.queue.state.content_work import Editor, unchanged
from taskraft_service.queue.state.dependents import DEPENDENTS_NUMBERS
from taskraft_service.queue.state.failures import FAILURE_NUMBERS
from taskraft_service.queue.state.lease_returns import LEASE_RETURN, UnfinishedReturns
from taskraft_service.queue.state.queue_state import (
    BEGINNING,
    CounterOrigin,
    QueueState,
)
from taskraft_service.queue.state.replicated_settings import SETTINGS
from taskraft_service.queue.state.schedule_registry import SCHEDULE_RECORD
from taskraft_service.queue.state.tube_codec import read_tube, write_tube
from taskraft_service.queue.state.tube_registry import TUBE_IN_CLEANUP, TubeInCleanup
from taskraft_service.queue.store.field_table import FieldTable
from taskraft_service.queue.store.fields import (
    Blob,
    Constant,
    Items,
    Nested,
    Number,
    Size,
    Text,
)
from taskraft_service.queue.store.indexes import Timers, write_timer
from taskraft_service.queue.store.keys import LEASE, META, TUBE, prefix_stop, timer_key, tube_key
from taskraft_service.queue.store.store import Store, Write
from taskraft_service.queue.transitions.endings import note_surplus
from taskraft_service.versions import FORMATS, HIGHEST, LOWEST, Formats, StateVersion, check_version

FORMAT: Final = FORMATS[HIGHEST].state
"""Newest format of the store that this release writes."""
_VERSIONED_SINCE: Final = 18
"""First format whose meta record has the cluster version in its bytes 1 and 2."""

REQUEST_NUMBERS: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict,
    Number("bucket", "Q"),
    Number("started_ms", "q"),
    Number("count", "Q"),
    Number("count_before", "Q"),
)
_WALL: Final[FieldTable[dict[str, int]]] = FieldTable(
    dict,
    Number("wall_offset_ms", "q"),
    Number("event_floor_ms", "q"),
    Number("clock_epoch", "q"),
    Number("clock_term", "q"),
)


def _in_cleanup(state: QueueState) -> Sequence[TubeInCleanup]:
    return state.removals.in_cleanup()


_LEASE_RETURNS: Final[FieldTable[dict[str, Any]]] = FieldTable(
    dict, Items("waiting", LEASE_RETURN, of=UnfinishedReturns.waiting)
)


def _end_of(state: QueueState) -> bytes:
    """Return the wall offset, the numbers of the clocks, and the unfinished returns of leases.

    Empty while all numbers are 0 and no lease returns. Without returns, only the numbers.
    """
    numbers = (state.wall_offset_ms, state.event_floor_ms, state.clock_epoch, state.clock_term)
    returns = state.lease_returns
    if not returns:
        return _WALL.write(state) if any(numbers) else b""
    return _WALL.write(state) + _LEASE_RETURNS.write(returns)


_META_FIELDS: Final = (
    Number("cluster_version", "H", of="cluster.version"),
    Number("planned_version", "H", of="cluster.planned"),
    Number("planned_at_ms", "q", of="cluster.planned_at_ms"),
    Number("index", "Q"),
    Number("now_ms", "q"),
    Number("token", "Q"),
    Number("last_tube", "I", of="tubes.number"),
    Number("last_session", "Q", of="sessions.number"),
    Items("removals", TUBE_IN_CLEANUP, of=_in_cleanup),
    Nested("settings", SETTINGS),
    Nested("requests", REQUEST_NUMBERS),
    Size("H", "partitions"),
    Size("H", "feed_id"),
    Text("feed_id", of="feed.feed_id"),
    Items("partitions", PARTITION_NUMBERS, of="feed.partitions"),
    Number("last_group", "Q", of="groups.number"),
    Nested("failures", FAILURE_NUMBERS),
    Nested("dependents", DEPENDENTS_NUMBERS),
    Blob("end", of=_end_of, to_end=True),
)


META_LAYOUTS: Final[Mapping[StateVersion, FieldTable[dict[str, Any]]]] = {
    version: FieldTable(dict, Constant("B", version), *_META_FIELDS) for version in StateVersion
}
"""The layout of the meta record in each format; every layout begins as that of format 18."""


class UnknownFormatError(Exception):
    """The store has the format of another version.

    The operator must start a release that reads the store, or use an empty data directory.
    """


def write_meta(state: QueueState) -> bytes:
    """Return the meta record of a state, in the format of the state."""
    return META_LAYOUTS[state.format].write(state)


def format_of(meta: bytes) -> StateVersion:
    """Return the format of the store that has this meta record.

    Raises:
        ClusterVersionUnknown: a cluster version that this release does not speak is in force.
        UnknownFormatError: this release does not read the format.
    """
    if meta[0] >= _VERSIONED_SINCE:
        check_version(int.from_bytes(meta[1:3], "big"))
    if meta[0] not in META_LAYOUTS:
        known = ", ".join(str(int(version)) for version in sorted(META_LAYOUTS))
        raise UnknownFormatError(f"the store has format {meta[0]}, this release reads {known}")
    return StateVersion(meta[0])


def restore_meta(state: QueueState, meta: bytes) -> None:
    """Set the numbers of a state from its meta record.

    Raises:
        ClusterVersionUnknown, UnknownFormatError: see ``format_of``.
    """
    state.format = format_of(meta)
    fields, end = META_LAYOUTS[state.format].read(meta)
    assert end == len(meta)
    state.index, state.now_ms, state.token = fields["index"], fields["now_ms"], fields["token"]
    state.cluster = ClusterVersionState(
        check_version(fields["cluster_version"]), fields["planned_version"], fields["planned_at_ms"]
    )
    state.tubes.number = fields["last_tube"]
    state.sessions.number = fields["last_session"]
    state.groups.number = fields["last_group"]
    state.settings = fields["settings"]
    state.removals.restore(fields["removals"], state.store, state.limits)
    state.requests.restore(**fields["requests"])
    state.feed.restore(fields["feed_id"], fields["partitions"])
    state.failures.restore(**fields["failures"])
    state.dependents.restore(**fields["dependents"])
    if fields["end"]:
        wall, stop = _WALL.read(fields["end"])
        state.wall_offset_ms, state.event_floor_ms = wall["wall_offset_ms"], wall["event_floor_ms"]
        state.clock_epoch, state.clock_term = wall["clock_epoch"], wall["clock_term"]
        if stop < len(fields["end"]):
            returns, _ = _LEASE_RETURNS.read(fields["end"], stop)
            state.lease_returns.restore(returns["waiting"])


def stored_index(store: Store) -> int:
    """Return the applied index of the state in a store; 0 for an empty store."""
    meta = store.get(META)
    return 0 if meta is None else int(META_LAYOUTS[format_of(meta)].read(meta)[0]["index"])


def stored_format(store: Store) -> StateVersion:
    """Return the format of a store; of an empty store, the newest format.

    Raises:
        ClusterVersionUnknown, UnknownFormatError: see ``format_of``.
    """
    meta = store.get(META)
    return FORMAT if meta is None else format_of(meta)


def stored_formats(store: Store) -> Formats:
    """Return the formats to write while the cluster version of a store is in force."""
    meta = store.get(META)
    return FORMATS[LOWEST if meta is None else check_version(int.from_bytes(meta[1:3], "big"))]


def collect(state: QueueState) -> list[Write]:
    """Return writes for the keys that changed since the last call, and for the meta record."""
    writes: list[Write] = []
    collect_tasks(state, writes)
    _collect_tubes(state, writes)
    writes += [(timer_key(timer), None) for timer in state.void_timers]
    state.void_timers.clear()
    state.sessions.collect(writes)
    state.requests.collect(writes)
    state.consumers.collect(writes)
    state.schedules.collect(writes)
    state.groups.collect(writes)
    state.dependents.collect(writes)
    state.unique_keys.collect(writes)
    state.failures.collect(writes)
    state.audit.collect(writes)
    state.bulk_sweeps.collect(writes)
    state.quarantines.collect(writes)
    state.tube_owners.collect(writes)
    state.feed.collect(writes, state.cluster.formats.feed)
    state.timers.flushed()
    writes.append((META, write_meta(state)))
    return writes


def _collect_tubes(state: QueueState, writes: list[Write]) -> None:
    state.tubes.collect_ended(writes)
    for tube in state.tubes.fetch_changed(state.index):
        for entry in tube.ready.collect(writes, tube.counters.states[READY]):
            task = tube.tasks.get(entry[-1])
            if task is not None and task.state is READY and not tube.ready.is_head(task):
                state.evict(task)
        tube.buried.flushed()
        writes.append((tube_key(tube.number), write_tube(tube, state.format)))
        write_timer(tube, writes)


def bare_task(body: bytes) -> NewTask:
    """Return a task with the given body and no attributes; the default for tests and tools."""
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
        ClusterVersionUnknown, UnknownFormatError: see ``format_of``.
        TubeDriverMissing: a tube needs a driver that is not installed on this node.
    """
    state = QueueState(store, limits, new_task, editor, drivers, origin)
    meta = store.get(META)
    if meta is None:
        return state
    restore_meta(state, meta)
    for _, record in store.scan(TUBE, prefix_stop(TUBE)):
        tube = read_tube(record, store, limits, state.format)
        tube.written_at = state.index
        state.tubes.admit(tube)
        note_surplus(state, tube)
    state.tubes.totals.restore()
    returns = state.lease_returns.waiting()
    state.sessions.restore(store, {work.number for work in returns if work.of_session})
    state.consumers.restore(store)
    state.schedules.restore(store)
    state.groups.restore(store)
    state.audit.restore(store)
    state.bulk_sweeps.restore(store)
    state.quarantines.restore(store, state.tubes.by_number)
    state.tube_owners.restore(store)
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
        state.leases[task.token] = tube.leases[task.token] = task
        if task.session is not None:
            task.session.held[task.token] = None
            if task.extras.cancel_requested:
                task.session.cancelled[task.token] = None


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
    yield repr((state.clock_epoch, state.clock_term)).encode()
    yield repr(astuple(state.cluster)).encode()
    yield repr(low_and_high(state.feed)).encode()
    for number, (tube, next_id) in state.removals.items():
        yield repr((number, tube.name, next_id)).encode()
        for task in state.tasks(tube, next_id - 1):
            # Hash the task and not its record: the record may still name a session that has ended.
            yield repr((task.id, task.state, task.attempt)).encode()
    for _, tube in sorted(state.tubes.items()):
        yield write_tube(tube, state.format)
        yield from tube.subqueue_rates.digest_parts(state.now_ms)
        for task in state.tasks(tube):
            yield task.id.to_bytes(8, "big") + write_task(task)
            yield state.body(task)
    for _, session in sorted(state.sessions.by_number.items()):
        yield SESSION_RECORD.write(session)
        yield repr(list(session.held)).encode()
    yield repr(list(state.leases)).encode()
    if state.lease_returns:
        yield _LEASE_RETURNS.write(state.lease_returns)
    yield from state.failures.digest_parts()
    yield from state.audit.digest_parts()
    yield from state.bulk_sweeps.digest_parts()
    yield from state.quarantines.digest_parts()
    yield from state.tube_owners.digest_parts()
    yield from map(write_consumer, state.consumers)
    yield from (SCHEDULE_RECORD.write(schedule) for schedule in state.schedules)
    yield from state.groups.digest_parts()
    yield from state.dependents.digest_parts()
    for place, task_id in state.unique_keys.items():
        yield place + task_id.to_bytes(8, "big")
    yield REQUEST_NUMBERS.write(state.requests)
    for request_id, answer in sorted(state.requests.items()):
        yield request_id.encode() + answer
