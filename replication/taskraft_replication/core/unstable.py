"""Hold the part of the log that is not known to be durable yet."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.types import Entry, LogIndex, Snapshot, Term


class Unstable:
    """The tail of the log that is not durable yet, and possibly a snapshot below it.

    ``entries[i]`` has the index ``offset + i``. Entries below ``offset_in_progress`` were passed to
    the append worker. Invariants: ``offset <= offset_in_progress <= offset + len(entries)``; with a
    snapshot, ``offset`` is one past it.
    """

    __slots__ = ("entries", "offset", "offset_in_progress", "snapshot", "snapshot_in_progress")

    def __init__(self, offset: LogIndex) -> None:
        self.offset = offset
        self.offset_in_progress = offset
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.snapshot_in_progress = False

    def take_entries(self) -> tuple[Entry, ...]:
        """Return the entries that the append worker does not have yet."""
        entries, begin = self.entries, self.offset_in_progress - self.offset
        if begin == len(entries):
            return ()
        self.offset_in_progress = LogIndex(self.offset + len(entries))
        return tuple(entries[begin:])

    def take_snapshot(self) -> Snapshot | None:
        """Return the snapshot for the append worker; None if there is none or the worker has it."""
        if self.snapshot is None or self.snapshot_in_progress:
            return None
        self.snapshot_in_progress = True
        return self.snapshot

    def term(self, index: LogIndex) -> Term | None:
        """Return the term at ``index``, or None if the entry is not in the tail."""
        position = index - self.offset
        if 0 <= position < len(self.entries):
            return self.entries[position].term
        if self.snapshot is not None and self.snapshot.meta.index == index:
            return self.snapshot.meta.term
        return None

    def append(self, entries: Sequence[Entry]) -> None:
        """Append ``entries``; stored entries from their first index on are replaced."""
        first = entries[0].index
        end = self.offset + len(self.entries)
        assert first <= end, "the log has no holes"
        if first == end:
            self.entries.extend(entries)
        elif first <= self.offset:
            self.entries = list(entries)
            self.offset = first
            self.offset_in_progress = first
        else:
            del self.entries[first - self.offset :]
            self.entries.extend(entries)
            self.offset_in_progress = min(self.offset_in_progress, first)

    def entries_synced(self, index: LogIndex, term: Term) -> None:
        """Remove the entries up to ``index``, unless the entry at ``index`` was replaced.

        Before entries become durable, another leader's entries may replace them; these are reported
        separately.
        """
        entries = self.entries
        position = index - self.offset
        if not 0 <= position < len(entries) or entries[position].term != term:
            return
        assert self.snapshot is None, "the snapshot below the entries is written first"
        del entries[: position + 1]
        self.offset = LogIndex(index + 1)
        self.offset_in_progress = max(self.offset_in_progress, self.offset)

    def snapshot_synced(self, index: LogIndex) -> None:
        """Remove the snapshot, unless another snapshot has replaced it."""
        if self.snapshot is not None and self.snapshot.meta.index == index:
            self.snapshot = None
            self.snapshot_in_progress = False

    def restore(self, snapshot: Snapshot) -> None:
        """Replace all entries by ``snapshot``."""
        self.offset = LogIndex(snapshot.meta.index + 1)
        self.offset_in_progress = self.offset
        self.entries = []
        self.snapshot = snapshot
        self.snapshot_in_progress = False
