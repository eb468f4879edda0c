"""Apply committed entries to the queue, and bring its changes to RocksDB in batches.

Satisfies ``replication.machine.StateMachine``. What a log entry did is returned to the driver,
which resolves the proposer's future of that (index, term) with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from replication.core.types import Entry, EntryKind, LogIndex
from service.codec import decode_entry
from service.forms import new_task
from service.queue.commands import Command, Result
from service.queue.limits import Limits
from service.queue.queue import Queue
from service.storage.directory import StateDirectory
from service.storage.rocks import RocksStore
from service.storage.snapshot import RocksSnapshot, SnapshotDamaged, build

OWN_ENTRIES_MAX: Final = 256
"""Entries proposed here whose commands are kept until they are applied; others are decoded anew."""


@dataclass(slots=True)
class Applied:
    """What one entry did: one result per command."""

    index: int
    now_ms: int
    results: Sequence[Result]


@dataclass(slots=True, frozen=True)
class CollectPace:
    """How often changes go to RocksDB: after so many entries or so long, whichever is first."""

    entries: int
    span_ms: int


class QueueMachine:
    """The replicated queue of one node.

    ``durable_index <= written_index <= applied_index`` always.

    Args:
        directory: where the databases lie.
        open_store: opens the database in a directory.
        limits: bounds of the queue, equal on all nodes.
        pace: how often changes are collected.
        monotonic_ms: reads a clock for the pace; results never depend on it.

    Raises:
        StateDamaged: the database cannot be opened.
    """

    def __init__(
        self,
        directory: StateDirectory,
        open_store: Callable[[Path], RocksStore],
        limits: Limits,
        pace: CollectPace,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._open_store = open_store
        self._limits = limits
        self._pace = pace
        self._monotonic_ms = monotonic_ms
        self._flushing = threading.Lock()
        self._own: dict[bytes, tuple[int, Sequence[Command]]] = {}
        self._listeners: list[Callable[[int], None]] = []
        self._open(directory.current)

    def _open(self, path: Path) -> None:
        self._store = self._open_store(path)
        self.queue = Queue(self._store, self._limits, new_task)
        self._written_index = self._durable_index = self.queue.applied_index
        self._collect_after_ms = self._monotonic_ms() + self._pace.span_ms

    @property
    def applied_index(self) -> LogIndex:
        """The last entry applied."""
        return LogIndex(self.queue.applied_index)

    @property
    def durable_index(self) -> LogIndex:
        """The last entry whose effects are on disk without the log."""
        return LogIndex(self._durable_index)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call ``listener`` with the queue's time after each slice of applied entries."""
        self._listeners.append(listener)

    def expect(self, data: bytes, now_ms: int, commands: Sequence[Command]) -> None:
        """Keep the commands of an entry proposed here, so that it is not decoded at apply.

        Found again by its bytes: equal bytes are equal commands, whatever became of the proposal.
        """
        if len(self._own) >= OWN_ENTRIES_MAX:
            del self._own[next(iter(self._own))]
        self._own[data] = (now_ms, commands)

    def apply(self, entries: Sequence[Entry]) -> Sequence[Applied]:
        """Apply committed entries in order; an exception is a defect and stops the node."""
        done = [self._apply(entry) for entry in entries]
        if self._collect_due():
            self.collect()
        for listener in self._listeners:
            listener(self.queue.now_ms)
        return done

    def _apply(self, entry: Entry) -> Applied:
        commands: Sequence[Command] = ()
        now_ms = self.queue.now_ms
        if entry.kind is EntryKind.NORMAL and entry.data:
            own = self._own.pop(entry.data, None)
            now_ms, commands = own or decode_entry(entry.data)
        results = self.queue.apply(entry.index, now_ms, commands)
        assert len(results) == len(commands)
        return Applied(entry.index, now_ms, results)

    def _collect_due(self) -> bool:
        waiting = self.queue.applied_index - self._written_index
        return waiting >= self._pace.entries or self._monotonic_ms() >= self._collect_after_ms

    def collect(self) -> None:
        """Write all changes since the last time, with the applied index, in one batch."""
        self._store.write(self.queue.collect_writes())
        self._written_index = self.queue.applied_index
        self._collect_after_ms = self._monotonic_ms() + self._pace.span_ms

    def flush_durably(self) -> LogIndex:
        """Bring what has been collected to disk; on a worker thread, while ``apply`` may run."""
        with self._flushing:
            index = self._written_index
            self._store.flush()
            self._durable_index = index
        return LogIndex(index)

    def open_snapshot(self) -> RocksSnapshot:
        """Freeze the state as it is now."""
        self.collect()
        return RocksSnapshot(self.applied_index, self._store.freeze())

    def install_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> None:
        """Replace the whole state, atomically: a crash leaves the old or the new one.

        Raises:
            SnapshotDamaged: the snapshot is not what was sent; the state is as before.
        """
        fresh = self._open_store(self._directory.fresh())
        try:
            build(fresh, chunks)
            found = Queue(fresh, self._limits).applied_index
            if found != index:
                raise SnapshotDamaged(f"the state of {found} instead of {index}")
        finally:
            fresh.close()
        with self._flushing:
            self._directory.switch()
            self._store.close()
            self._own.clear()
            self._open(self._directory.current)
        self._directory.discard_old()
        for listener in self._listeners:
            listener(self.queue.now_ms)

    def abandon(self) -> None:
        """Close the files without writing anything."""
        self._store.close()

    def close(self) -> None:
        """Write and flush everything, and close the files."""
        self.collect()
        self.flush_durably()
        self._store.close()
