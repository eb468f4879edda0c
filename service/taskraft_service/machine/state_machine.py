"""Apply committed entries to the queue, and bring its changes to RocksDB in batches.

Satisfies ``StateMachine``. What a log entry did is returned to the driver,
which resolves the proposer's future of that (index, term) with it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskraft_replication.core.types import Entry, EntryKind, LogIndex
from taskraft_service.command_codecs.put import new_task
from taskraft_service.entries.body_editor import edit_body
from taskraft_service.entries.log_entry import decode_entry
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver, TubeDriverMissing
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.registry import Command, Result
from taskraft_service.queue.persistence.opening import UnknownFormatError, stored_index
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.directory import StateDirectory, StateForeign
from taskraft_service.storage.rocks import RocksStore, StateDamaged
from taskraft_service.storage.snapshot import RocksSnapshot, SnapshotDamaged, build

OWN_ENTRIES_MAX: Final = 256
"""Entries proposed here whose commands are kept until they are applied; others are decoded anew."""
COLLECT_TASKS: Final = 4_000
"""Changed tasks that are written together: some tens of milliseconds."""
POSTPONED_BATCHES_MAX: Final = 16
"""How many times as many may have changed before a slow disk slows everything down."""
FROZEN_CACHE_BYTES: Final = 1 << 20
"""What a frozen database may use while its index is read."""


@dataclass(slots=True)
class AppliedEntry:
    """What one entry did: one result per command."""

    index: int
    now_ms: int
    results: Sequence[Result]


@dataclass(slots=True, frozen=True)
class CollectPolicy:
    """When changes go to RocksDB: whichever of these comes first.

    To collect is never urgent, for the log has everything. So it waits while RocksDB would make the
    event loop wait, until very many tasks have changed.
    """

    entries: int
    """After so many entries,"""
    span_ms: int
    """after so long,"""
    tasks: int = COLLECT_TASKS
    """or when so many tasks have changed, by which the pause of the event loop is bounded."""


class OpenDatabase:
    """A database that is in use, the queue on it, and how far it has come on disk.

    ``durable_index <= written_index <= queue.applied_index`` always.

    Raises:
        StateDamaged: the database cannot be read.
        StateForeign: another version wrote it.
    """

    def __init__(
        self, place: Path, store: RocksStore, limits: Limits, drivers: Mapping[str, TubeDriver]
    ) -> None:
        self.place = place
        self.store = store
        try:
            self.queue = Queue(store, limits, new_task, edit_body, drivers)
        except UnknownFormatError as error:
            store.close()
            raise StateForeign(f"{place}: {error}") from error
        except (StateDamaged, TubeDriverMissing):
            store.close()
            raise
        self.written_index = self.durable_index = self.queue.applied_index


class QueueMachine:
    """The replicated queue of one node.

    Args:
        directory: where the databases lie.
        open_store: opens the database in a directory.
        limits: bounds of the queue, equal on all nodes.
        pace: how often changes are collected.
        monotonic_ms: reads a clock for the pace; results never depend on it.
        drivers: the kinds of tubes that others have written, by name.

    Raises:
        StateDamaged: the database cannot be opened.
        StateForeign: another version wrote it.
    """

    def __init__(
        self,
        directory: StateDirectory,
        open_store: Callable[[Path], RocksStore],
        limits: Limits,
        pace: CollectPolicy,
        monotonic_ms: Callable[[], int],
        drivers: Mapping[str, TubeDriver] = NO_DRIVERS,
    ) -> None:
        self._drivers = drivers
        self._directory = directory
        self._open_store = open_store
        self._limits = limits
        self._pace = pace
        self._monotonic_ms = monotonic_ms
        self._flushing = threading.Lock()
        """Held by whoever flushes, freezes or closes a database on a worker thread."""
        self._own: dict[bytes, tuple[int, Sequence[Command]]] = {}
        self._listeners: list[Callable[[int], None]] = []
        self._news_listeners: list[Callable[[int], None]] = []
        self._use(self._open(directory.current))

    def _open(self, place: Path) -> OpenDatabase:
        return OpenDatabase(place, self._open_store(place), self._limits, self._drivers)

    def _use(self, state: OpenDatabase) -> None:
        self._state = state
        self.queue = state.queue
        self.applied_index = LogIndex(state.queue.applied_index)
        """Index of the last entry applied; always that of the queue."""
        self._collect_after_ms = self._monotonic_ms() + self._pace.span_ms

    @property
    def durable_index(self) -> LogIndex:
        """The last entry whose effects are on disk without the log."""
        return LogIndex(self._state.durable_index)

    @property
    def snapshot_index(self) -> LogIndex:
        """The last entry that a snapshot opened now would hold."""
        return LogIndex(self._state.written_index)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the queue's time after each slice of applied entries."""
        self._listeners.append(listener)

    def listen_to_news(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the queue's time after entries that the queue has news of.

        See ``Queue.has_news``. The listener fetches the news.
        """
        self._news_listeners.append(listener)

    def _notify_listeners(self, now_ms: int) -> None:
        for listener in self._listeners:
            listener(now_ms)
        if self.queue.has_news:
            for listener in self._news_listeners:
                listener(now_ms)

    def expect(self, data: bytes, now_ms: int, commands: Sequence[Command]) -> None:
        """Keep the commands of an entry proposed here, so that it is not decoded at apply.

        Found again by its bytes: equal bytes are equal commands, whatever became of the proposal.
        """
        if len(self._own) >= OWN_ENTRIES_MAX:
            del self._own[next(iter(self._own))]
        self._own[data] = (now_ms, commands)

    def apply(self, entries: Sequence[Entry]) -> Sequence[AppliedEntry]:
        """Apply committed entries in order; an exception is a defect and stops the node."""
        done = [self._apply(entry) for entry in entries]
        # At once after a membership change: a newcomer takes no snapshot that does not name it, and
        # until it has one no further entry may come.
        if self._collect_due() or any(each.kind is not EntryKind.NORMAL for each in entries):
            self.collect()
        if done:
            self._notify_listeners(done[-1].now_ms)
        return done

    def _apply(self, entry: Entry) -> AppliedEntry:
        commands: Sequence[Command] = ()
        now_ms = self.queue.now_ms
        if entry.kind is EntryKind.NORMAL and entry.data:
            own = self._own.pop(entry.data, None)
            stamp_ms, commands = own or decode_entry(entry.data)
            # A new leader stamps its first entry before it has applied all that the one before had
            # stamped, perhaps by a clock that was ahead. All replicas correct it in the same way.
            now_ms = max(now_ms, stamp_ms)
        results = self.queue.apply(entry.index, now_ms, commands)
        assert len(results) == len(commands)
        self.applied_index = entry.index
        return AppliedEntry(entry.index, now_ms, results)

    def _collect_due(self) -> bool:
        written = self._state.written_index
        if not written:
            # From the first entry on there is a state that can be given to a newcomer.
            return True
        pace, changed = self._pace, self.queue.changed_tasks
        is_due = (
            changed >= pace.tasks
            or self.applied_index - written >= pace.entries
            or self._monotonic_ms() >= self._collect_after_ms
        )
        if not is_due or changed >= POSTPONED_BATCHES_MAX * pace.tasks:
            return is_due
        return not self._state.store.is_choked

    def collect(self) -> None:
        """Write all changes since the last time, with the applied index, in one batch."""
        state = self._state
        state.store.write(state.queue.collect_writes())
        state.queue.read_ahead()
        state.written_index = state.queue.applied_index
        self._collect_after_ms = self._monotonic_ms() + self._pace.span_ms

    def flush_durably(self) -> LogIndex:
        """Bring what has been collected to disk; on a worker thread, while ``apply`` may run."""
        with self._flushing:
            state = self._state
            index = state.written_index
            state.store.flush()
            state.durable_index = index
        return LogIndex(index)

    def open_snapshot(self) -> RocksSnapshot:
        """Freeze what has been collected; on a worker thread, while ``apply`` may run."""
        place = self._directory.outgoing()
        with self._flushing:
            self._state.store.freeze(place)
        # A batch may have come in before the moment of the copy: the copy itself knows.
        frozen = RocksStore(place, FROZEN_CACHE_BYTES, FROZEN_CACHE_BYTES, read_only=True)
        try:
            index = stored_index(frozen)
        finally:
            frozen.close()
        return RocksSnapshot(LogIndex(index), place)

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedQueue:
        """Build the state of a snapshot beside the one in use; on a worker thread.

        Raises:
            SnapshotDamaged: the snapshot is not what was sent, or no state can be opened from it.
        """
        place = self._directory.fresh()
        try:
            return StagedQueue(self, self._build(place, index, chunks))
        except StateDamaged as error:
            shutil.rmtree(place)
            raise SnapshotDamaged(f"it cannot be opened: {error}") from error
        except BaseException:
            # It takes room, perhaps the last there was.
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _build(self, place: Path, index: LogIndex, chunks: Iterable[bytes]) -> OpenDatabase:
        build(place, chunks)
        state = self._open(place)
        found = state.queue.applied_index
        if found != index:
            state.store.close()
            raise SnapshotDamaged(f"the state of {found} instead of {index}")
        return state

    def switch(self) -> None:
        """Make the staged database the current one, durably; see ``StagedQueue``."""
        self._directory.switch()

    def adopt(self, state: OpenDatabase) -> OpenDatabase:
        """Use ``state`` from now on; return the one used before."""
        before = self._state
        self._own.clear()
        self._use(state)
        self._notify_listeners(self.queue.now_ms)
        return before

    def discard(self, state: OpenDatabase) -> None:
        """Close and remove a database that is not in use; on a worker thread."""
        with self._flushing:
            state.store.close()
        self._directory.discard(state.place)

    def abandon(self) -> None:
        """Close the files without writing anything."""
        self._state.store.close()

    def close(self) -> None:
        """Write and flush everything, and close the files."""
        self.collect()
        self.flush_durably()
        self._state.store.close()


class StagedQueue:
    """A state from a snapshot, ready for use; satisfies ``StagedState``."""

    def __init__(self, machine: QueueMachine, state: OpenDatabase) -> None:
        self._machine = machine
        self._unused = state

    def switch(self) -> None:
        """See ``StagedState``."""
        self._machine.switch()

    def adopt(self) -> None:
        """See ``StagedState``."""
        self._unused = self._machine.adopt(self._unused)

    def discard(self) -> None:
        """See ``StagedState``."""
        self._machine.discard(self._unused)
