"""Show the stored log to the core: terms and recent entries from memory, older ones from the files.

Lives on the event loop. It learns of a write when the storage worker has finished it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskraft_replication.core.errors import (
    Compacted,
    EntryUnavailable,
    SnapshotTemporarilyUnavailable,
)
from taskraft_replication.core.types import ConfState, Entry, HardState, LogIndex, Snapshot, Term
from taskraft_replication.storage.metadata import LogStart
from taskraft_replication.storage.recent import RecentEntries
from taskraft_replication.storage.segment_log import SegmentLog
from taskraft_replication.storage.term_index import TermIndex


def no_snapshot() -> Snapshot:
    """Stand for a state machine that has no snapshot yet."""
    raise SnapshotTemporarilyUnavailable


class StoredLog:
    """The ``LogReader`` of a group."""

    def __init__(
        self,
        log: SegmentLog,
        terms: TermIndex,
        recent: RecentEntries,
        initial: tuple[HardState, ConfState],
    ) -> None:
        self._log = log
        self._terms = terms
        self._recent = recent
        self._initial = initial
        self.snapshot_source: Callable[[], Snapshot] = no_snapshot
        """Says which snapshot the state machine could give now."""

    def initial_state(self) -> tuple[HardState, ConfState]:
        """See ``LogReader``."""
        return self._initial

    def first_index(self) -> LogIndex:
        """See ``LogReader``."""
        return LogIndex(self._terms.before + 1)

    def last_index(self) -> LogIndex:
        """See ``LogReader``."""
        return self._terms.last

    def term(self, index: LogIndex) -> Term:
        """See ``LogReader``."""
        if index < self._terms.before:
            raise Compacted
        if index > self._terms.last:
            raise EntryUnavailable
        return self._terms.term(index)

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """See ``LogReader``."""
        if lo <= self._terms.before:
            raise Compacted
        if hi > self._terms.last + 1:
            raise EntryUnavailable
        assert lo < hi
        first = self._recent.first
        if first is not None and lo >= first:
            return self._recent.read(lo, hi, bytes_max)
        return self._log.read(lo, hi, bytes_max)

    def snapshot(self) -> Snapshot:
        """See ``LogReader``."""
        return self.snapshot_source()

    def publish(self, entries: Sequence[Entry]) -> None:
        """Show entries that were stored, in place of any with the same indexes."""
        terms, recent = self._terms, self._recent
        if entries[0].index <= terms.last:
            cut = LogIndex(entries[0].index - 1)
            terms.cut_after(cut)
            recent.cut_after(cut)
        for entry in entries:
            terms.append(entry.index, entry.term)
            recent.append(entry)

    def publish_start(self, start: LogStart) -> None:
        """Forget what was trimmed."""
        self._terms.drop_before(start.index)
        self._recent.drop_before(LogIndex(start.index + 1))

    def publish_reset(self, index: LogIndex, term: Term) -> None:
        """Forget everything: a snapshot up to ``index`` took its place."""
        self._terms = TermIndex(index, term)
        self._recent.cut_after(LogIndex(0))
