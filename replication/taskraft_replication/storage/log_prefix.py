"""Reduce a damaged log to its longest whole part: the last resort of a member that is alone."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.damaged_log import DamagedLog
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.log_copy import LogCopy
from taskraft_replication.storage.log_parts import LogRange
from taskraft_replication.storage.mark import Mark, MarkFile
from taskraft_replication.storage.metadata import LogStart, Metadata
from taskraft_replication.storage.segment import SEGMENT_BYTES

READ_BYTES = 1 << 20


class LogPrefix:
    """The whole part of a log: from the state of the member up to the first unreadable entry.

    Args:
        fs: the data directory.
        group_id: the Raft group.
        applied: index of the state with which the member continues.

    Raises:
        LogDamaged: a small file is damaged, or the log is missing.
        OSError: the disk cannot read a file.
    """

    def __init__(self, fs: FileSystem, group_id: int, applied: LogIndex) -> None:
        self._fs = fs
        self._metadata = Metadata(fs, f"raft-{group_id}")
        log = self._log = _log_of(fs, self._metadata)
        self._start = log.start_behind(applied)
        gaps = log.gaps(self._start)
        if log.last < applied or (gaps and gaps[0].first <= applied):
            # The term of the entry before the log is unknown. It only has to be in order: no other
            # member has a log to compare.
            term = log.term(LogIndex(applied + 1)) or self._metadata.hard_state().term
            self._start = LogStart(log.start.generation, applied, term)
            gaps = log.gaps(self._start)
        self.last = LogIndex(gaps[0].first - 1) if gaps else max(log.last, applied)
        """Last entry of the part that is whole."""

    @property
    def lost(self) -> LogRange | None:
        """The entries that a continuation gives up, or None."""
        first = LogIndex(self.last + 1)
        return LogRange(first, self._log.last) if first <= self._log.last else None

    def keep(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Replace the log by its whole part, durably."""
        # The indexes after ``last`` get other entries, which must not count as committed.
        commit = min(self._log.commit, self.last)
        copy = LogCopy(self._fs, self._metadata, self._start, commit, segment_bytes)
        at = LogIndex(self._start.index + 1)
        while at <= self.last:
            entries = self._log.entries(at, LogIndex(self.last + 1), READ_BYTES)
            copy.add(entries)
            at = LogIndex(entries[-1].index + 1)
        self._renew_mark()
        copy.finish()

    def _renew_mark(self) -> None:
        """Create the mark again if it is unreadable; the next start sets it."""
        path = f"{self._metadata.directory}/mark"
        try:
            MarkFile.open(self._fs, path).close()
        except LogDamaged:
            start = self._log.start
            MarkFile.create(
                self._fs, path, Mark(start.generation, start.index, start.term, 0)
            ).close()


def _log_of(fs: FileSystem, metadata: Metadata) -> DamagedLog:
    try:
        return DamagedLog(fs, metadata)
    except LogDamaged:
        return DamagedLog(fs, metadata, may_lack_end=True)
