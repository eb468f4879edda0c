"""Keep a log in memory: a ``LogReader`` for tests, simulations and interactive use."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.errors import Compacted, EntryUnavailable
from taskraft_replication.core.log import any_change, within
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    HardState,
    LogIndex,
    Snapshot,
    SnapshotMeta,
    Term,
)


class MemoryLog:
    """A log that lives as long as the object."""

    def __init__(self, configuration: ConfState = ConfState()) -> None:  # noqa: B008 - a value
        self._hard_state = HardState()
        self._snapshot = Snapshot(SnapshotMeta(LogIndex(0), Term(0), configuration))
        self._compacted = Entry(Term(0), LogIndex(0))
        """Position of the last compacted entry, which precedes the first entry."""
        self._entries: list[Entry] = []

    def initial_state(self) -> tuple[HardState, ConfState]:
        """Return the hard state, and the membership of the newest snapshot."""
        return self._hard_state, self._snapshot.meta.conf_state

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return the entries from ``lo`` up to, not including, ``hi``, within ``bytes_max``."""
        first = self._compacted.index + 1
        if lo < first:
            raise Compacted
        if hi - first > len(self._entries):
            raise EntryUnavailable
        return within(self._entries[lo - first : hi - first], bytes_max)

    def has_change(self, lo: LogIndex, hi: LogIndex) -> bool:
        """Return whether an entry from ``lo`` to below ``hi`` is a membership change."""
        first = self._compacted.index + 1
        return any_change(self._entries[lo - first : hi - first])

    def term(self, index: LogIndex) -> Term:
        """Return the term at ``index``; also answers for ``first_index - 1``."""
        position = index - self._compacted.index - 1
        if position == -1:
            return self._compacted.term
        if position < 0:
            raise Compacted
        if position >= len(self._entries):
            raise EntryUnavailable
        return self._entries[position].term

    def first_index(self) -> LogIndex:
        """Return the index of the first entry."""
        return LogIndex(self._compacted.index + 1)

    def last_index(self) -> LogIndex:
        """Return the index of the last entry."""
        return LogIndex(self._compacted.index + len(self._entries))

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        return self._snapshot

    def store(
        self, hard_state: HardState | None, entries: Sequence[Entry], snapshot: Snapshot | None
    ) -> None:
        """Store the snapshot, hard state and entries of one Ready or one STORAGE_APPEND."""
        if hard_state is not None:
            self._hard_state = hard_state
        if snapshot is not None:
            self.install(snapshot)
        if entries:
            self._append(entries)

    def install(self, snapshot: Snapshot) -> None:
        """Replace the log by ``snapshot``."""
        assert snapshot.meta.index > self._snapshot.meta.index
        self._snapshot = snapshot
        self._compacted = Entry(snapshot.meta.term, snapshot.meta.index)
        self._entries = []

    def compact(self, index: LogIndex) -> None:
        """Drop the entries up to ``index``."""
        term = self.term(index)
        self._entries = self._entries[index - self._compacted.index :]
        self._compacted = Entry(term, index)

    def _append(self, entries: Sequence[Entry]) -> None:
        position = entries[0].index - self._compacted.index - 1
        assert 0 <= position <= len(self._entries), "no holes"
        del self._entries[position:]
        self._entries.extend(entries)
