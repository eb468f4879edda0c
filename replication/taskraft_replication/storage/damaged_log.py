"""Find the entries that can still be read in a damaged log.

Each record has a checksum of its own, with a random start value of this log, so a valid record is
an entry of this log, also behind a damaged one. A truncation removes the bytes of the truncated
records durably before other records follow, so no valid record is outdated.

The log can be completed if records behind each damaged entry can be read. Such a record proves that
nothing else was appended at its index; so a member that has an entry of the same index and term has
the damaged entry too. If the end of the log is missing, the number of lost entries is unknown, and
the member must be replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from taskraft_replication.core.types import Entry, LogIndex, Term
from taskraft_replication.damage import is_damage
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.filesystem import File, FileSystem
from taskraft_replication.storage.log_parts import LogKnowledge, LogRange, TermRun, runs_of
from taskraft_replication.storage.mark import Mark, MarkFile
from taskraft_replication.storage.metadata import LogStart, Metadata
from taskraft_replication.storage.record import Record, decode_behind, decode_record
from taskraft_replication.storage.recovery import valid_mark
from taskraft_replication.storage.segment import (
    RECORDS_OFFSET,
    SUFFIX,
    first_index_in,
    segment_prefix,
)
from taskraft_replication.storage.segment_log import LOG_DIRECTORY

UNUSED_BYTES: Final = 64
"""Number of zeros at the end of a segment that show unused space: that a file was not cut."""

NO_MARK: Final = Mark(-1, LogIndex(0), Term(0), 0)
"""Stands for a mark that cannot be read."""


class _Place(NamedTuple):
    """Place and checksums of a readable record."""

    segment: str
    offset: int
    size: int
    term: Term
    crc: int
    crc_before: int


class DamagedLog:
    """The readable entries of a damaged log; blocks.

    Args:
        fs: the data directory.
        metadata: the small files of the member.
        may_lack_end: accept a log whose end or mark is missing: a last resort, which may lose
            acknowledged entries.

    Raises:
        LogDamaged: the log is missing, its end is damaged, or a small file is, so that it cannot be
            completed.
        OSError: the disk cannot read a file.
    """

    def __init__(self, fs: FileSystem, metadata: Metadata, *, may_lack_end: bool = False) -> None:
        self._fs = fs
        self._directory = f"{metadata.directory}/{LOG_DIRECTORY}"
        self.salt = metadata.salt()
        self.start = metadata.log_start()
        mark = self._read_mark(f"{metadata.directory}/mark", may_lack_end=may_lack_end)
        self._places: dict[LogIndex, _Place] = {}
        self._durable = mark.index
        # Of the newest segment: end of the last valid record, and of the bytes that are not zero.
        self._readable_end = self._written_end = 0
        self._is_whole_file = False
        self._newest_first = LogIndex(0)
        self.commit = metadata.hard_state().commit
        """Highest commit index that is known."""
        for name in self._segment_names():
            self._read_segment(name)
        self.last = self._end(mark, may_lack_end=may_lack_end)
        self._places = {index: each for index, each in self._places.items() if index <= self.last}
        last_readable = max(self._places, default=self.start.index)
        self.end_first = LogIndex(max(last_readable + 1, self._newest_first))
        """The first entry that may be in the damaged bytes at the end."""
        self._check_chain()
        self._mark = mark
        marked = self._places.get(mark.index)
        if marked is not None and (marked.crc, marked.term) != (mark.crc, mark.term):
            raise LogDamaged(
                f"{self._directory}: entry {mark.index} differs from the entry that was fsynced"
            )
        # Peers ask twice a second; a long log takes longer than the event loop may be blocked.
        self._knowledge = self._describe()

    def _segment_names(self) -> list[str]:
        prefix = segment_prefix(self.start.generation)
        try:
            names = self._fs.names(self._directory)
        except FileNotFoundError as error:
            raise LogDamaged(f"{self._directory} is missing") from error
        return [name for name in names if name.startswith(prefix) and name.endswith(SUFFIX)]

    def _read_segment(self, name: str) -> None:
        """Add the valid records of a segment; a bad sector hides all of them."""
        self._is_whole_file = False
        try:
            raw = self._fs.read(f"{self._directory}/{name}")
        except OSError as error:
            if is_damage(error):
                return
            raise
        end = RECORDS_OFFSET
        for offset, record in decode_behind(raw, RECORDS_OFFSET, self.salt):
            end = offset + record.size
            index = record.entry.index
            self._durable = max(self._durable, record.synced)
            self.commit = max(self.commit, record.commit)
            if index <= self.start.index:
                continue
            if index in self._places:
                raise LogDamaged(f"{self._directory}/{name}: entry {index} exists twice")
            self._places[index] = _place(name, offset, record)
        self._readable_end = end
        self._written_end = len(raw.rstrip(b"\0"))
        self._is_whole_file = len(raw) >= self._written_end + UNUSED_BYTES
        self._newest_first = first_index_in(name)

    def _read_mark(self, path: str, *, may_lack_end: bool) -> Mark:
        try:
            mark_file = MarkFile.open(self._fs, path)
            mark_file.close()
            return valid_mark(path, mark_file.current, self.start)
        except LogDamaged:
            if not may_lack_end:
                raise
            return valid_mark(path, NO_MARK, self.start)

    def _end(self, mark: Mark, *, may_lack_end: bool) -> LogIndex:
        """Return the last entry; what follows was never acknowledged.

        Raises:
            LogDamaged: the last entries are unreadable, and their number is unknown.
        """
        last = self._durable
        if may_lack_end:
            return max([last, *self._places])
        while LogIndex(last + 1) in self._places:
            last = LogIndex(last + 1)
        is_readable = last in self._places or last == self.start.index
        if not is_readable and (last != mark.index or not self._has_damaged_end):
            raise LogDamaged(
                f"{self._directory}: the last entries are missing or unreadable, up to entry "
                f"{last} at least"
            )
        return last

    @property
    def _has_damaged_end(self) -> bool:
        """Return whether damaged bytes and then unused space follow the last valid record."""
        return self._is_whole_file and self._written_end > self._readable_end

    def check_end(self, entries_bytes: int) -> None:
        """Check that the last entries, if they were unreadable, are all that was written.

        After a power loss, the mark may name an earlier entry than the last durable one.

        Args:
            entries_bytes: length of the records of the entries from ``end_first`` on; 0: none.

        Raises:
            LogDamaged: further entries may have been written.
        """
        if entries_bytes and self._readable_end + entries_bytes < self._written_end:
            raise LogDamaged(f"{self._directory}: entries after {self.last} may have been durable")

    def _check_chain(self) -> None:
        """Check that neighbours belong together, as every start of a member does."""
        before: tuple[LogIndex, _Place] | None = None
        for index, place in sorted(self._places.items()):
            if before is not None:
                known, last = before
                if place.term < last.term or (index == known + 1 and place.crc_before != last.crc):
                    raise LogDamaged(
                        f"{self._directory}: entry {index} does not continue entry {known}"
                    )
            before = index, place

    def gaps(self, start: LogStart) -> list[LogRange]:
        """Return the entries after ``start`` that cannot be read, as ranges in order."""
        found: list[LogRange] = []
        expected = start.index + 1
        for index in (*sorted(self._places), LogIndex(self.last + 1)):
            if index > expected:
                found.append(LogRange(LogIndex(expected), LogIndex(index - 1)))
            expected = max(expected, index + 1)
        return found

    def start_behind(self, applied: LogIndex) -> LogStart:
        """Return the latest start of the log behind a gap below the state, or the present start.

        Args:
            applied: index of a durable state of this member. The entries up to there are committed,
                and the member does not need them any more.
        """
        ends = [gap.last + 1 for gap in self.gaps(self.start) if gap.last < min(applied, self.last)]
        if not ends:
            return self.start
        index = LogIndex(ends[-1])
        return LogStart(self.start.generation, index, self._places[index].term)

    def knowledge(self) -> LogKnowledge:
        """Return which entries can be read, and that of the mark, whose term is known."""
        return self._knowledge

    def _describe(self) -> LogKnowledge:
        ordered = sorted(self._places.items())
        readable = tuple(runs_of((index, place.term) for index, place in ordered))
        mark = self._mark
        if mark.index in self._places or mark.index <= self.start.index:
            return LogKnowledge(readable, self.commit)
        return LogKnowledge(readable, self.commit, (TermRun(mark.index, mark.index, mark.term),))

    def term(self, index: LogIndex) -> Term | None:
        """Return the term of a readable entry, or None."""
        place = self._places.get(index)
        return None if place is None else place.term

    def entries(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> Sequence[Entry]:
        """Return entries from ``lo`` to below ``hi``: at least one, then as many as fit the limit.

        Raises:
            LogDamaged: the first entry cannot be read.
        """
        found: list[Entry] = []
        size = 0
        with ExitStack() as opened:
            files: dict[str, File] = {}
            for index in map(LogIndex, range(lo, hi)):
                place = self._places.get(index)
                if place is None or (found and size + place.size > bytes_max):
                    break
                if place.segment not in files:
                    file = self._fs.open(f"{self._directory}/{place.segment}")
                    opened.callback(file.close)
                    files[place.segment] = file
                found.append(self._read(files[place.segment], index, place))
                size += place.size
        if not found:
            raise LogDamaged(f"{self._directory}: entry {lo} is unreadable")
        return found

    def _read(self, file: File, index: LogIndex, place: _Place) -> Entry:
        record = decode_record(file.read(place.offset, place.size), 0, self.salt)
        if record is None or record.entry.index != index:
            raise LogDamaged(f"{self._directory}/{place.segment}: entry {index} is unreadable")
        return record.entry


def _place(name: str, offset: int, record: Record) -> _Place:
    return _Place(name, offset, record.size, record.entry.term, record.crc, record.crc_before)
