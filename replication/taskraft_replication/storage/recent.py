"""Keep the newest entries in memory, for followers and for the state machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_replication.core.types import Entry, LogIndex

RECENT_BYTES_MAX: Final = 32 << 20
"""Maximum payload kept in memory; entries for a follower that is further behind are read from
files."""

RECENT_ENTRIES_MAX: Final = 20_000
"""Maximum number of entries kept in memory; for small entries, the object overhead dominates."""


class RecentEntries:
    """A bounded, contiguous run of the newest entries; when full, the older half is dropped."""

    def __init__(
        self, bytes_max: int = RECENT_BYTES_MAX, entries_max: int = RECENT_ENTRIES_MAX
    ) -> None:
        self._entries: list[Entry] = []
        self._bytes = 0
        self._bytes_max = bytes_max
        self._entries_max = entries_max

    @property
    def first(self) -> LogIndex | None:
        """Index of the oldest entry in memory, or None if there is none."""
        return self._entries[0].index if self._entries else None

    def append(self, entry: Entry) -> None:
        """Append the next entry of the log."""
        entries = self._entries
        assert not entries or entry.index == entries[-1].index + 1
        entries.append(entry)
        self._bytes += len(entry.data)
        if self._bytes > self._bytes_max or len(entries) > self._entries_max:
            self._shrink()

    def _shrink(self) -> None:
        """Drop the older half, because dropping single entries would copy the list each time."""
        while len(self._entries) > 1 and (
            self._bytes > self._bytes_max // 2 or len(self._entries) > self._entries_max // 2
        ):
            half = (len(self._entries) + 1) // 2
            self._bytes -= sum(len(entry.data) for entry in self._entries[:half])
            del self._entries[:half]

    def cut_after(self, index: LogIndex) -> None:
        """Drop the entries after ``index``."""
        if self._entries:
            keep = max(0, index - self._entries[0].index + 1)
            self._bytes -= sum(len(entry.data) for entry in self._entries[keep:])
            del self._entries[keep:]

    def drop_before(self, index: LogIndex) -> None:
        """Drop the entries below ``index``."""
        if self._entries and index > self._entries[0].index:
            gone = index - self._entries[0].index
            self._bytes -= sum(len(entry.data) for entry in self._entries[:gone])
            del self._entries[:gone]

    def read(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return the entries from ``lo`` to below ``hi`` that fit, at least one.

        ``lo`` must be at least ``first``, and ``hi - 1`` at most the last index.
        """
        base = self._entries[0].index
        found = self._entries[lo - base : hi - base]
        size = 0
        for count, entry in enumerate(found):
            size += len(entry.data)
            if size > bytes_max and count > 0:
                return found[:count]
        return found
