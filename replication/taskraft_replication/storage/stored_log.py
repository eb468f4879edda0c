"""Present the stored log to the core: terms and recent entries in memory, older entries from files.

Used on the event loop only. A write becomes visible once the storage worker has finished it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from taskraft_replication.core.errors import (
    Compacted,
    EntryUnavailable,
    SnapshotTemporarilyUnavailable,
)
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Snapshot,
    Term,
)
from taskraft_replication.storage.log_parts import TermRun
from taskraft_replication.storage.metadata import LogStart
from taskraft_replication.storage.recent import RecentEntries
from taskraft_replication.storage.segment_log import SegmentLog


class TermIndex:
    """The terms of the entries from ``first - 1`` to ``last``, as runs of equal terms.

    A log of a million entries has as many runs as it saw elections.
    """

    def __init__(self, index: LogIndex, term: Term) -> None:
        self._starts = [index]
        self._terms = [term]
        self.last = index

    @property
    def before(self) -> LogIndex:
        """Smallest index with a known term, which precedes the first entry."""
        return self._starts[0]

    def append(self, index: LogIndex, term: Term) -> None:
        """Add the next entry."""
        assert index == self.last + 1, "indexes are consecutive"
        assert term >= self._terms[-1], "terms never decrease along the log"
        if term != self._terms[-1]:
            self._starts.append(index)
            self._terms.append(term)
        self.last = index

    def term(self, index: LogIndex) -> Term:
        """Return the term at ``index``, which must be known."""
        assert self._starts[0] <= index <= self.last
        return self._terms[bisect_right(self._starts, index) - 1]

    def runs(self) -> Iterator[TermRun]:
        """Yield the runs of the entries after ``before``."""
        first = LogIndex(self.before + 1)
        for place, term in enumerate(self._terms):
            follows = place + 1 < len(self._starts)
            last = LogIndex(self._starts[place + 1] - 1) if follows else self.last
            if last >= first:
                yield TermRun(max(first, self._starts[place]), last, term)

    def cut_after(self, index: LogIndex) -> None:
        """Forget the terms behind ``index``."""
        assert self._starts[0] <= index <= self.last
        keep = bisect_right(self._starts, index)
        del self._starts[keep:]
        del self._terms[keep:]
        self.last = index

    def drop_before(self, index: LogIndex) -> None:
        """Forget the terms below ``index``."""
        term = self.term(index)
        keep = bisect_right(self._starts, index)
        self._starts[:keep] = [index]
        self._terms[:keep] = [term]


def no_snapshot() -> Snapshot:
    """Raise an error, because the state machine has no snapshot yet."""
    raise SnapshotTemporarilyUnavailable


class StoredLog:
    """The ``LogReader`` of a group."""

    def __init__(
        self,
        log: SegmentLog,
        terms: TermIndex,
        changes: list[LogIndex],
        recent: RecentEntries,
        initial: tuple[HardState, ConfState],
    ) -> None:
        """``changes``: indexes of all membership changes in the log, in order."""
        self._log = log
        self._terms = terms
        self._changes = changes
        self._recent = recent
        self._initial = initial
        self.snapshot_source: Callable[[], Snapshot] = no_snapshot
        """Returns the metadata of the snapshot that the state machine can open now."""

    def initial_state(self) -> tuple[HardState, ConfState]:
        """Return the durable hard state, and the membership as of ``RaftConfig.applied``."""
        return self._initial

    def first_index(self) -> LogIndex:
        """Return the index of the first stored entry, one past the snapshot when there is none."""
        return LogIndex(self._terms.before + 1)

    def last_index(self) -> LogIndex:
        """Return the index of the last stored entry, ``first_index - 1`` when there is none."""
        return self._terms.last

    def term(self, index: LogIndex) -> Term:
        """Return the term of the entry at ``index``; also answers for ``first_index - 1``."""
        if index < self._terms.before:
            raise Compacted
        if index > self._terms.last:
            raise EntryUnavailable
        return self._terms.term(index)

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return the entries from ``lo`` up to, not including, ``hi``."""
        if lo <= self._terms.before:
            raise Compacted
        if hi > self._terms.last + 1:
            raise EntryUnavailable
        assert lo < hi
        first = self._recent.first
        if first is not None and lo >= first:
            return self._recent.read(lo, hi, bytes_max)
        return self._log.read(lo, hi, bytes_max)

    def runs(self) -> tuple[TermRun, ...]:
        """Return the stored entries as runs of equal terms."""
        return tuple(self._terms.runs())

    def has_change(self, lo: LogIndex, hi: LogIndex) -> bool:
        """Return whether an entry from ``lo`` to below ``hi`` is a membership change."""
        return bisect_left(self._changes, lo) < bisect_left(self._changes, hi)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot, not older than ``first_index - 1``."""
        return self.snapshot_source()

    def publish(self, entries: Sequence[Entry]) -> None:
        """Show stored entries, in place of entries with the same indexes."""
        terms, changes, recent = self._terms, self._changes, self._recent
        if entries[0].index <= terms.last:
            cut = LogIndex(entries[0].index - 1)
            terms.cut_after(cut)
            recent.cut_after(cut)
            del changes[bisect_right(changes, cut) :]
        for entry in entries:
            terms.append(entry.index, entry.term)
            recent.append(entry)
            if entry.kind is not EntryKind.NORMAL:
                changes.append(entry.index)

    def publish_start(self, start: LogStart) -> None:
        """Hide the trimmed entries."""
        self._terms.drop_before(start.index)
        self._recent.drop_before(LogIndex(start.index + 1))
        del self._changes[: bisect_right(self._changes, start.index)]

    def publish_reset(self, index: LogIndex, term: Term) -> None:
        """Hide all entries, because a snapshot up to ``index`` replaced the log."""
        self._terms = TermIndex(index, term)
        self._recent.cut_after(LogIndex(0))
        self._changes.clear()
