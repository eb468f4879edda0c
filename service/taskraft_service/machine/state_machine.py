"""Apply committed entries to the queue, and write its changes to RocksDB in batches.

Satisfies ``StateMachine``. The driver receives the results of each log entry and resolves the
proposer's future of that (index, term) with them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from taskraft_replication.core.types import Entry, EntryKind, LogIndex
from taskraft_replication.damage import Damage
from taskraft_replication.errors import FormatUnknown, SnapshotUnavailable
from taskraft_service.entries.log_entry import decode_entry
from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.machine.failed_drivers import AppliedEntry, FailedDrivers
from taskraft_service.machine.open_database import Database, FixedState, OpenDatabase
from taskraft_service.machine.write_behind import WriteBehind
from taskraft_service.queue.entities.tube_driver import NO_DRIVERS, TubeDriver
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.leadership import SetClusterVersion
from taskraft_service.queue.operations.registry import Command, LoggedCommand, items_of
from taskraft_service.queue.persistence.state_records import stored_formats, stored_index
from taskraft_service.storage.directory import DatabaseDirectory, StateForeign
from taskraft_service.storage.frozen_store import FrozenStore
from taskraft_service.storage.rocks import StateDamaged
from taskraft_service.storage.snapshot import RocksSnapshot, SnapshotDamaged, build
from taskraft_service.versions import (
    HIGHEST,
    ClusterVersionUnknown,
    DigestVersion,
    check_version,
)

OWN_ENTRIES_MAX: Final = 256
"""Maximum number of own proposed entries whose decoded commands are kept; the others are
decoded."""
APPLIED_ITEMS_MAX: Final = 500
"""Number of tasks that entries change before the event loop can run other work."""
NO_INDEX: Final = LogIndex(-1)

UseView: TypeAlias = Callable[[LogIndex, DigestVersion, FixedState], None]
"""Receives the state after an entry, and the version in which its digests are compared."""


def _report_nowhere(_damage: Damage) -> None:
    """Do nothing; the default receiver of damage."""


def _use_no_view(_index: LogIndex, _version: DigestVersion, _state: FixedState) -> None:
    """Do nothing; receives views until the first request for a view."""


class QueueMachine:
    """The replicated queue of one node.

    Args:
        directory: directory of the databases.
        open_store: opens the database in a directory.
        limits: limits of the queue, equal on all nodes.
        pace: limits of the changes that are not written to RocksDB yet.
        monotonic_ms: reads the clock for ``pace``; results never depend on it.
        drivers: installed tube drivers, by name.

    Raises:
        StateDamaged: the database cannot be opened.
        StateForeign: another version wrote it.
    """

    def __init__(
        self,
        directory: DatabaseDirectory,
        open_store: Callable[[Path], Database],
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
        """Held by the worker thread that flushes, freezes or closes a database."""
        self.failed_drivers = FailedDrivers(lambda: self.queue.quarantines)
        self.report_damage: Callable[[Damage], object] = _report_nowhere
        """Receives damage that a snapshot has found; called on a worker thread."""
        self.state_received: Callable[[], object] = lambda: None
        """Called when this machine uses a state that another member has sent."""
        self._use_view: UseView = _use_no_view
        self._items_left: int | None = None
        """Number of tasks that the entries of this call of ``apply`` may still change; None: the
        call has one entry."""
        self._own: dict[int, tuple[bytes, int, Sequence[LoggedCommand]]] = {}
        """By the identity of the bytes: the bytes, timestamp and commands of own entries."""
        self._listeners: list[Callable[[int], None]] = []
        self._news_listeners: list[Callable[[int], None]] = []
        self._use(self._open(directory.current))

    def _open(self, place: Path) -> OpenDatabase:
        return OpenDatabase(place, self._open_store(place), self._limits, self._drivers)

    def _use(self, state: OpenDatabase) -> None:
        self._state = state
        self.queue = state.queue
        self._quarantines = self.queue.quarantines
        self._damage: Damage | None = None
        """Damage of the database in use."""
        self.failed_drivers.reset()
        self.applied_index = LogIndex(state.queue.applied_index)
        """Index of the last entry applied; always that of the queue."""
        self._view_index = NO_INDEX
        self._writes = WriteBehind(state, self._pace, self._monotonic_ms)
        self.is_writing = False
        """Whether a batch of changes is being written in steps; no entry is applied meanwhile."""

    @property
    def durable_index(self) -> LogIndex:
        """Index of the last entry whose effects are durable without the log."""
        return LogIndex(self._state.durable_index)

    @property
    def snapshot_index(self) -> LogIndex:
        """Index of the last entry that a snapshot opened now would contain."""
        return LogIndex(self._state.written_index)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the queue's time after each slice of applied entries."""
        self._listeners.append(listener)

    def listen_to_news(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the queue's time after entries with changes for the leader.

        ``Queue.has_news`` returns whether there are such changes; the listener fetches the changes.
        """
        self._news_listeners.append(listener)

    def _notify_listeners(self, now_ms: int) -> None:
        for listener in self._listeners:
            listener(now_ms)
        if self.queue.has_news:
            for listener in self._news_listeners:
                listener(now_ms)

    @property
    def cluster_version(self) -> int:
        """Return the cluster version in the applied state."""
        return self.queue.cluster.version

    def next_deadline_ms(self) -> int | None:
        """Return the cluster time of the next deadline; None: there is no deadline."""
        return self.queue.next_deadline_ms()

    def predict_ready(self, commands: Sequence[Command], now_ms: int) -> Mapping[str, int]:
        """Return an upper estimate of the number of tasks that an entry makes ready, by tube."""
        return self.queue.predict_ready_tubes(commands, now_ms)

    def leases_ended_by(self, command: Command) -> int:
        """Return the number of existing leases and sessions that a command ends."""
        return self.queue.leases_ended_by(command)

    def lease_count(self) -> int:
        """Return the number of existing leases and sessions."""
        return self.queue.lease_count

    def expect(self, data: bytes, now_ms: int, commands: Sequence[LoggedCommand]) -> None:
        """Keep the commands of an entry that this node proposes, to apply them without decoding.

        Below the highest cluster version of this release, the entry is decoded all the same,
        because the cluster version may hide fields of its requests.

        The commands are looked up by the identity of the bytes: a hash of 30 MiB takes 10 ms.
        """
        if self.queue.cluster.version < HIGHEST:
            return
        if len(self._own) >= OWN_ENTRIES_MAX:
            del self._own[next(iter(self._own))]
        self._own[id(data)] = (data, now_ms, commands)

    def waits_for_disk(self, entry: Entry) -> bool:
        """Return whether applying ``entry`` would have to write a batch that blocks.

        RocksDB blocks a write while all write buffers wait for the disk. A blocked write holds the
        interpreter lock, so all threads of the process would stop.
        """
        if not self._writes.is_full and entry.kind is EntryKind.NORMAL:
            return False
        return self._state.store.is_choked

    def apply(self, entries: Sequence[Entry]) -> Sequence[AppliedEntry]:
        """Apply committed entries in order; an exception is a bug and stops the node.

        Stops at an entry at which a driver failed, and keeps its result back; see
        ``FailedDrivers``. The empty result of an entry without commands is not kept back. Stops
        also after entries that have changed ``APPLIED_ITEMS_MAX`` tasks.
        """
        failed = self.failed_drivers
        done: list[AppliedEntry] = []
        if self.is_writing:
            self._end_write()
        self._items_left = APPLIED_ITEMS_MAX if len(entries) > 1 else None
        for entry in entries:
            if failed.held_index or self._items_left == 0:
                break
            if self.queue.has_old_format:
                self._state.upgrade()
            applied = failed.fetch_released() if failed.has_released else self._apply(entry)
            if self._quarantines.causes and self._hold(entry, applied):
                break
            self.applied_index = entry.index
            done.append(applied)
            if entry.index == self._view_index:
                self._take_view()
            if self.is_writing:
                break
        if not self.is_writing and self._writes.is_due(entries):
            self._begin_to_write()
        if done:
            self._notify_listeners(done[-1].now_ms)
        return done

    def _hold(self, entry: Entry, applied: AppliedEntry) -> bool:
        """Stop at an entry at which a driver failed; return whether its result is kept back."""
        is_kept_back = entry.kind is EntryKind.NORMAL
        self.failed_drivers.hold(entry.index, applied if is_kept_back else None)
        return is_kept_back

    def waits_for_members(self) -> bool:
        """Return whether the failure of a driver is not confirmed by a majority yet."""
        return self.failed_drivers.is_waiting()

    def _apply(self, entry: Entry) -> AppliedEntry:
        commands: Sequence[LoggedCommand] = ()
        now_ms = self.queue.now_ms
        if entry.kind is EntryKind.NORMAL and entry.data:
            own = self._own.pop(
                id(entry.data), None
            )  # which keeps the bytes, and so their identity
            timestamp_ms, commands = own[1:] if own is not None else self._decode(entry)
            # A new leader may give its first entry a timestamp before it has applied all entries of
            # the previous leader, whose clock may have been ahead. All replicas correct the
            # timestamp in the same way.
            now_ms = max(now_ms, timestamp_ms)
        if self.queue.ahead:
            self.queue.read_ahead()
        results = self.queue.apply(entry.index, now_ms, commands)
        assert len(results) == len(commands)
        if self._items_left is not None:
            items = sum(map(items_of, commands)) + self.queue.steps_taken
            self._items_left = max(self._items_left - items, 0)
        self._writes.waiting_bytes += len(entry.data)
        queue = self.queue
        return AppliedEntry(entry.index, now_ms, queue.wall_offset_ms, results, queue.repeated)

    def _decode(self, entry: Entry) -> tuple[int, Sequence[LoggedCommand]]:
        """Return timestamp and commands of an entry, as the cluster version in force reads them.

        Raises:
            FormatUnknown: a later release proposed the entry, and this release must not apply it.
        """
        try:
            now_ms, commands = decode_entry(entry.data, self.queue.cluster.version)
            raised = [one.version for one in commands if isinstance(one, SetClusterVersion)]
            check_version(max(raised, default=HIGHEST) or HIGHEST)
        except ClusterVersionUnknown as error:
            raise FormatUnknown(f"log entry {entry.index}: {error}") from error
        return now_ms, commands

    @property
    def is_choked(self) -> bool:
        """Return whether ``collect`` would block until the disk catches up."""
        return self._state.store.is_choked

    def _begin_to_write(self) -> None:
        """Begin a batch, except while a failed driver is not confirmed.

        The quarantine of such a driver must not become durable.
        """
        if not self.failed_drivers.held_index:
            self._writes.begin()
            self._written()

    def write_some(self) -> None:
        """Do the next step of the batch that is being written, in some milliseconds."""
        self._writes.write_some()
        self._written()

    def _end_write(self) -> None:
        """Do all steps that are left of the batch that is being written."""
        if self.is_writing:
            self._writes.end()
            self._written()

    def collect(self) -> None:
        """Write all changes since the last batch, without a pause for other work."""
        if not self.is_writing:
            self._begin_to_write()
        self._end_write()

    def write_applied(self) -> None:
        """Write a batch at once, if the write does not block, so that a snapshot contains it."""
        if not self.is_choked:
            self.collect()

    def view_at(self, index: LogIndex, use: UseView) -> None:
        """Call ``use`` with the state after an entry, at once or once the entry is applied.

        There is no call if a later entry is applied already, if the state cannot be written then,
        or if a snapshot replaces the state. A later request replaces an earlier one.
        """
        self._view_index, self._use_view = index, use
        if index == self.applied_index:
            self._end_write()
            self._take_view()
            self._end_write()

    def _written(self) -> None:
        """Note whether a batch is complete, and pass on the state with it, if that is wanted."""
        self.is_writing = self._writes.is_writing
        if self._view_index == self.applied_index and not self.is_writing:
            self._view_index = NO_INDEX
            version = self.queue.cluster.formats.digest
            self._use_view(self.applied_index, version, self._state.store.view())

    def _take_view(self) -> None:
        """Begin to write the state after the last applied entry, which is then passed on."""
        if self.failed_drivers.held_index or self._state.store.is_choked:
            self._view_index = NO_INDEX
            return
        if self.queue.has_old_format:
            # A member that restarts after the raise has converted its records already.
            self._state.upgrade()
        self._begin_to_write()

    def live_tables(self) -> tuple[Path, Mapping[str, int]]:
        """Return the directory of the database, and name and size in bytes of each table in use.

        May be called on any thread.

        Raises:
            StateClosed: a snapshot has just replaced the database.
        """
        state = self._state
        return state.place, state.store.tables()

    def flush_durably(self) -> LogIndex:
        """Make the written batches durable; on a worker thread, while ``apply`` may run."""
        with self._flushing:
            return LogIndex(self._state.flush())

    def open_snapshot(self) -> RocksSnapshot:
        """Freeze the written batches; on a worker thread, while ``apply`` may run.

        Raises:
            SnapshotUnavailable: an earlier snapshot has found damage in the database.
        """
        if self._damage is not None:
            raise SnapshotUnavailable(str(self._damage))
        frozen = self.open_frozen()
        try:
            index, formats = stored_index(frozen.store), stored_formats(frozen.store)
        finally:
            frozen.store.close()
        place = self._state.place
        return RocksSnapshot(
            LogIndex(index), frozen.place, formats, partial(self._note_damage, place)
        )

    def _note_damage(self, place: Path, damage: Damage) -> None:
        """Report damage in a file of a frozen copy, which is a link to a file of the database."""
        found = replace(damage, file=f"{place.parent.name}/{place.name}/{damage.file}")
        if place == self._state.place:
            self._damage = found
        self.report_damage(found)

    def open_frozen(self) -> FrozenStore:
        """Copy the written batches, and open the copy; on a worker thread, as ``open_snapshot``.

        A batch may be written just before the copy is made, so the index is that of the copy.
        """
        place = self._directory.outgoing()
        with self._flushing:
            self._state.store.freeze(place)
        return FrozenStore(place)

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedQueue:
        """Build the state of a snapshot beside the current one; on a worker thread.

        Raises:
            SnapshotDamaged: the snapshot is corrupt, or no state can be opened from it.
            FormatUnknown: this release does not read the snapshot or its state; the node must stop.
        """
        place = self._directory.fresh()
        try:
            return StagedQueue(self, self._build(place, index, chunks))
        except StateDamaged as error:
            shutil.rmtree(place)
            raise SnapshotDamaged(f"the received state cannot be opened: {error}") from error
        except StateForeign as error:
            shutil.rmtree(place)
            raise FormatUnknown(f"the received state cannot be opened: {error}") from error
        except BaseException:
            # Delete the partial copy, because it may occupy the last free disk space.
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _build(self, place: Path, index: LogIndex, chunks: Iterable[bytes]) -> OpenDatabase:
        build(place, chunks)
        state = self._open(place)
        found = state.queue.applied_index
        if found != index:
            state.store.close()
            raise SnapshotDamaged(f"the snapshot contains index {found}, expected {index}")
        return state

    def switch(self) -> None:
        """Make the staged database the current one, durably; see ``StagedQueue``."""
        self._directory.switch()

    def adopt(self, state: OpenDatabase) -> OpenDatabase:
        """Use ``state`` from now on; return the previous database."""
        before = self._state
        self._own.clear()
        self._use(state)
        self.state_received()
        self._notify_listeners(self.queue.now_ms)
        return before

    def discard(self, state: OpenDatabase) -> None:
        """Close and delete a database that is not in use; on a worker thread."""
        with self._flushing:
            _give_up(state)
        self._directory.discard(state.place)

    def abandon(self) -> None:
        """Close the files without writing anything."""
        _give_up(self._state)

    def close(self) -> None:
        """Write and flush all changes, and close the files.

        If the write would block, the changes are left to the log.
        """
        self.write_applied()
        self.flush_durably()
        self._state.store.close()


def _give_up(state: OpenDatabase) -> None:
    """Close the files of a state that this node needs no more, also if the state is damaged."""
    with suppress(StateDamaged):  # whoever gives a state up knows of its damage
        state.store.close()


class StagedQueue:
    """A state from a snapshot, ready for use; satisfies ``StagedState``."""

    def __init__(self, machine: QueueMachine, state: OpenDatabase) -> None:
        self._machine = machine
        self._unused = state

    def switch(self) -> None:
        """Select this state for restarts, durably and atomically; runs on a worker thread."""
        self._machine.switch()

    def adopt(self) -> None:
        """Use this state instead of the old state."""
        self._unused = self._machine.adopt(self._unused)

    def discard(self) -> None:
        """Remove the unused state: after ``adopt`` the old state, otherwise this state."""
        self._machine.discard(self._unused)
