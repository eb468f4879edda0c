"""Combine the durable log and its unstable tail, with the commit and applied indexes."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.errors import CommittedEntriesMissing, Compacted
from taskraft_replication.core.log_reader import LogReader
from taskraft_replication.core.types import Entry, EntryKind, LogIndex, Snapshot, Term
from taskraft_replication.core.unstable import Unstable


def payload_bytes(entries: Sequence[Entry]) -> int:
    """Return the size of the entries' payloads; the payload of a no-op is 0 bytes."""
    if len(entries) == 1:
        return len(entries[0].data)
    return sum([len(entry.data) for entry in entries]) if entries else 0


def within(entries: Sequence[Entry], bytes_max: int) -> Sequence[Entry]:
    """Return the longest prefix with at most ``bytes_max`` of payload, but at least one entry."""
    if len(entries) == 1:
        return entries
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry.data)
        if size > bytes_max and count:
            return entries[:count]
    return entries


def any_change(entries: Sequence[Entry]) -> bool:
    """Return whether one of the entries is a membership change."""
    return any(entry.kind is not EntryKind.NORMAL for entry in entries)


class RaftLog:
    """The log of one member.

    Invariants: ``applied <= applying <= commit <= last``; entries at or below ``commit`` are never
    replaced; the three indexes never decrease.
    """

    __slots__ = (
        "_applies_unstable",
        "_applying_bytes",
        "_applying_paused",
        "_committed_bytes_max",
        "_last_term_from",
        "_storage",
        "applied_index",
        "applying_index",
        "commit_index",
        "last_index",
        "last_term",
        "unstable",
    )

    def __init__(
        self, storage: LogReader, committed_bytes_max: int, *, applies_unstable: bool
    ) -> None:
        self._storage = storage
        self._applies_unstable = applies_unstable
        self._committed_bytes_max = committed_bytes_max
        self._applying_bytes = 0
        self._applying_paused = False
        start = LogIndex(storage.first_index() - 1)
        self.commit_index = start
        self.applying_index = start
        """Last entry handed to the apply worker."""
        self.applied_index = start
        self.last_index = storage.last_index()
        self.last_term = storage.term(self.last_index)
        self._last_term_from = self.last_index
        """All entries from this index to the last entry are known to have the last term."""
        self.unstable = Unstable(LogIndex(self.last_index + 1))
        assert start <= self.last_index

    # Reading

    def first_index(self) -> LogIndex:
        """Return the first index whose entry can still be read."""
        snapshot = self.unstable.snapshot
        if snapshot is not None:
            return LogIndex(snapshot.meta.index + 1)
        return self._storage.first_index()

    def term(self, index: LogIndex) -> Term | None:
        """Return the term at ``index``; None if the entry is compacted or does not exist yet."""
        if index > self.last_index:
            return None
        if index >= self._last_term_from and (
            index >= self.applied_index or index == self.last_index
        ):
            return self.last_term  # unapplied entries are never compacted
        term = self.unstable.term(index)
        if term is not None:
            return term
        if self.unstable.snapshot is not None or index + 1 < self._storage.first_index():
            return None
        return self._storage.term(index)

    def matches(self, index: LogIndex, term: Term) -> bool:
        """Return whether the entry at ``index`` exists and has ``term``.

        If so, both logs are equal up to this entry (Raft paper, 5.3: log matching).
        """
        return self.term(index) == term

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return the entries from ``lo`` up to, not including, ``hi``, within ``bytes_max``.

        Raises:
            Compacted: ``lo`` lies below the first entry.
        """
        assert lo < hi <= self.last_index + 1
        unstable = self.unstable
        offset = unstable.offset
        if lo >= offset:
            return within(unstable.entries[lo - offset : hi - offset], bytes_max)
        if unstable.snapshot is not None:
            raise Compacted  # the log begins behind it
        cut = min(hi, offset)
        stored = self._storage.entries(lo, cut, bytes_max)
        assert stored
        assert stored[0].index == lo
        if cut == hi or len(stored) < cut - lo:
            return stored
        return within([*stored, *unstable.entries[: hi - offset]], bytes_max)

    @property
    def has_unapplied_change(self) -> bool:
        """Return whether a membership change is known to be committed but is not applied.

        A pending snapshot counts as a change, because it can contain changes that are not in the
        log.
        """
        unstable = self.unstable
        if unstable.snapshot is not None:
            return True
        lo, hi = LogIndex(self.applied_index + 1), LogIndex(self.commit_index + 1)
        cut = min(hi, unstable.offset)
        if lo < cut and self._storage.has_change(lo, cut):
            return True
        begin = max(lo, unstable.offset) - unstable.offset
        return any_change(unstable.entries[begin : max(0, hi - unstable.offset)])

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot.

        Raises:
            SnapshotTemporarilyUnavailable: the storage has not finished it yet.
        """
        return self.unstable.snapshot or self._storage.snapshot()

    def is_up_to_date(self, term: Term, index: LogIndex) -> bool:
        """Return whether a log that ends with ``term`` and ``index`` is not behind this one.

        Raft paper, 5.4.1: the later last term wins, then the longer log.
        """
        return term > self.last_term or (term == self.last_term and index >= self.last_index)

    def last_not_above(self, index: LogIndex, term: Term) -> tuple[LogIndex, Term]:
        """Return the last entry at or below ``index`` whose term is at most ``term``.

        This is the highest position at which a log with ``term`` at ``index`` can match this log.
        The returned term is 0 if this log does not know it.
        """
        own = self.term(index)
        while own is not None and own > term:
            index = LogIndex(index - 1)
            own = self.term(index)
        return index, own or Term(0)

    # Writing

    def append(self, entries: Sequence[Entry]) -> None:
        """Append ``entries``; entries from their first index on are replaced, if not committed."""
        assert entries
        first, last = entries[0], entries[-1]
        assert first.index > self.commit_index, "committed entries are never replaced"
        assert last.index == first.index + len(entries) - 1
        self.unstable.append(entries)
        if last.term != self.last_term or first.index <= self._last_term_from:
            self._last_term_from = first.index if first.term == last.term else last.index
        self.last_index = last.index
        self.last_term = last.term

    def append_after(
        self, index: LogIndex, term: Term, entries: Sequence[Entry]
    ) -> LogIndex | None:
        """Append a leader's ``entries``, which follow ``index`` and ``term``.

        Matching entries are kept, and only entries from the first conflict on are replaced. The
        message may be outdated, and this log may already be longer (Raft paper, figure 2). Returns
        the last index known to match the leader's log, or None if the logs differ at ``index``.
        """
        if self.term(index) != term:
            return None
        if not entries:
            return index
        if index == self.last_index:
            self.append(entries)  # this log has no entries that could conflict
            return self.last_index
        for position, entry in enumerate(entries):
            if not self.matches(entry.index, entry.term):
                self.append(entries[position:])
                break
        return LogIndex(index + len(entries))

    def commit_to(self, index: LogIndex) -> bool:
        """Commit all entries up to ``index``; return whether the commit index advanced."""
        if index <= self.commit_index:
            return False
        if index > self.last_index:
            raise CommittedEntriesMissing(index, self.last_index)
        self.commit_index = index
        return True

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the log by ``snapshot``, which must be above the commit index."""
        assert snapshot.meta.index > self.commit_index, "a snapshot must be above the commit index"
        self.unstable.restore(snapshot)
        self.commit_index = snapshot.meta.index
        self.last_index = snapshot.meta.index
        self.last_term = snapshot.meta.term
        self._last_term_from = self.last_index

    # Applying

    @property
    def has_committed(self) -> bool:
        """Return whether committed entries can be handed to the apply worker."""
        return (
            not self._applying_paused
            and self.unstable.snapshot is None
            and self.applying_index < self._appliable_index()
        )

    def take_committed(self) -> tuple[Entry, ...]:
        """Return the next entries for the apply worker, up to its limit of bytes.

        Entries above a snapshot wait until the snapshot is installed.
        """
        before = self.applying_index
        if before == self.commit_index or self._applying_paused or self.unstable.snapshot:
            return ()
        end = self._appliable_index()
        if before >= end:
            return ()
        room = self._committed_bytes_max - self._applying_bytes
        assert room > 0
        entries = self.entries(LogIndex(before + 1), LogIndex(end + 1), room)
        index = entries[-1].index
        assert before < index <= end
        self.applying_index = index
        self._applying_bytes += payload_bytes(entries)
        # A batch that was cut by its size also pauses, because the next entry would not fit either.
        full = self._applying_bytes >= self._committed_bytes_max
        self._applying_paused = full or index < end
        return tuple(entries)

    def applied_to(self, index: LogIndex, size: int) -> None:
        """Record that the entries up to ``index`` are applied, the last ``size`` bytes just now."""
        assert self.applied_index <= index <= self.commit_index
        self.applied_index = index
        self.applying_index = max(self.applying_index, index)
        self._applying_bytes = max(self._applying_bytes - size, 0)
        self._applying_paused = self._applying_bytes >= self._committed_bytes_max

    @property
    def stored_commit_index(self) -> LogIndex:
        """Return the last committed entry that is durable; 0 while a snapshot replaces the log.

        Entries of the stored log after this index may be uncommitted entries of an earlier leader,
        also up to ``commit_index``, while the entries that replace them are being written.
        """
        if self.unstable.snapshot is not None:
            return LogIndex(0)
        return LogIndex(min(self.commit_index, self.unstable.offset - 1))

    def _appliable_index(self) -> LogIndex:
        """Return the last committed entry that is durable.

        In synchronous mode, the driver stores a Ready before it applies it, so an entry that is not
        durable yet can be applied.
        """
        unsynced = self.unstable.offset
        if self._applies_unstable or self.commit_index < unsynced:
            return self.commit_index
        return LogIndex(unsynced - 1)
