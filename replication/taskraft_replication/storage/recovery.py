"""Read the log at a start, and distinguish a torn tail from damage to acknowledged entries.

Only records that cannot have been acknowledged are truncated: incomplete records after the mark, if
no later batch states that they were durable. Any other missing or unreadable record raises
``LogDamaged``: this member has lost acknowledged entries (Protocol-Aware Recovery, FAST 2018).
"""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.types import EntryKind, LogIndex
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.mark import Mark, MarkFile
from taskraft_replication.storage.metadata import LogStart, Metadata
from taskraft_replication.storage.recent import RecentEntries
from taskraft_replication.storage.record import decode_behind, decode_chain
from taskraft_replication.storage.segment import (
    RECORDS_OFFSET,
    SEGMENT_BYTES,
    SUFFIX,
    Segment,
    create_segment,
    read_segment,
    segment_name,
    segment_prefix,
)
from taskraft_replication.storage.segment_log import LOG_DIRECTORY, SegmentLog
from taskraft_replication.storage.stored_log import TermIndex


class RecoveredLog:
    """The recovered log, with the terms and recent entries that the event loop keeps in memory."""

    def __init__(self, start: LogStart, recent: RecentEntries) -> None:
        self.terms = TermIndex(start.index, start.term)
        self.changes: list[LogIndex] = []
        """Indexes of all membership changes in the log, in order."""
        self.recent = recent
        self.commit = LogIndex(0)
        """Highest commit index stored in a record."""
        self.segments: list[Segment] = []
        self.last_crc: int | None = None
        """Checksum of the last record, or None if there is none."""

    def open_log(
        self, fs: FileSystem, metadata: Metadata, mark: MarkFile, segment_bytes: int
    ) -> SegmentLog:
        """Open the recovered log for writing."""
        return SegmentLog(
            fs, metadata, mark, segments=tuple(self.segments), segment_bytes=segment_bytes
        )

    def admit(self, path: str, segment: Segment, raw: bytes, salt: int, mark: Mark) -> None:
        """Add the valid records of the next segment.

        Raises:
            LogDamaged: entries before the segment are missing, or a record contradicts the mark.
        """
        if segment.first_index != self.terms.last + 1:
            before = f"{self.segments[-1].name} ends early; " if self.segments else ""
            raise LogDamaged(
                f"{path}: {before}entries {self.terms.last + 1} to {segment.first_index - 1} "
                f"before this segment are missing or unreadable"
            )
        if self.last_crc is not None and segment.crc_before != self.last_crc:
            raise LogDamaged(f"{path} does not continue the segment before it")
        crc = segment.crc_before
        term = self.terms.term(self.terms.last)
        sizes: list[int] = []
        for record in decode_chain(raw, RECORDS_OFFSET, salt, crc, segment.first_index):
            entry = record.entry
            if entry.index == mark.index and (record.crc != mark.crc or entry.term != mark.term):
                raise LogDamaged(
                    f"{path}: entry {entry.index} differs from the entry that was fsynced"
                )
            if entry.term != term:
                if entry.term < term:
                    raise LogDamaged(f"{path}: the term decreases at entry {entry.index}")
                term = entry.term
            if entry.kind is not EntryKind.NORMAL:
                self.changes.append(entry.index)
            self.terms.append(entry.index, term)
            self.recent.append(entry)
            self.commit = max(self.commit, record.commit)
            sizes.append(record.size)
            crc = record.crc
        if not sizes:
            # A segment gets its final name only when its first records are durable.
            raise LogDamaged(f"{path}: entry {segment.first_index} is unreadable")
        segment.note(sizes)
        self.last_crc = crc
        self.segments.append(segment)


def recover(
    fs: FileSystem, metadata: Metadata, recent: RecentEntries, segment_bytes: int = SEGMENT_BYTES
) -> tuple[RecoveredLog, SegmentLog]:
    """Read the log and open it.

    The newest segment and all segments with records past the mark are copied into new files and
    fsynced. After a failed fsync the page cache can hold data that is not on disk, and after a
    crash during a truncation the disk can hold records that the page cache does not show.

    Raises:
        LogDamaged: durable entries are missing or unreadable.
    """
    start, salt = metadata.log_start(), metadata.salt()
    directory = f"{metadata.directory}/{LOG_DIRECTORY}"
    mark_file = MarkFile.open(fs, f"{metadata.directory}/mark")
    mark = valid_mark(f"{metadata.directory}/mark", mark_file.current, start)
    names = _remove_leftovers(fs, directory, start)
    recovered = RecoveredLog(start, recent)
    raw = b""
    unproven: list[tuple[Segment, bytes]] = []
    for name in names:
        segment, raw = read_segment(fs, directory, name)
        recovered.admit(f"{directory}/{name}", segment, raw, salt, mark)
        if segment.last_index >= mark.index:
            unproven.append((segment, raw))
    last = recovered.terms.last
    if last < mark.index:
        file = f"{directory}/{names[-1]}" if names else directory
        raise LogDamaged(
            f"{file}: the log ends at entry {last}, but was durable up to {mark.index}"
        )
    if recovered.segments:
        _check_behind(directory, raw, recovered.segments[-1], salt)
    _rewrite(fs, directory, unproven, segment_bytes)
    crc = mark.crc if recovered.last_crc is None else recovered.last_crc
    mark_file.write(Mark(start.generation, last, recovered.terms.term(last), crc))
    mark_file.sync()
    return recovered, recovered.open_log(fs, metadata, mark_file, segment_bytes)


def valid_mark(path: str, mark: Mark, start: LogStart) -> Mark:
    """Return the mark, or a mark at the start of the log if the log was replaced since."""
    if mark.generation > start.generation:
        raise LogDamaged(
            f"{path}: the mark belongs to a newer generation than the log on this disk"
        )
    if mark.generation < start.generation or mark.index < start.index:
        return Mark(start.generation, start.index, start.term, 0)
    return mark


def _remove_leftovers(fs: FileSystem, directory: str, start: LogStart) -> list[str]:
    """Delete leftovers of an interrupted trim, reset, copy or new segment; return the segments."""
    generation = segment_prefix(start.generation)
    first = segment_name(start.generation, LogIndex(start.index + 1))
    kept: list[str] = []
    refuse: list[str] = []
    try:
        names = fs.names(directory)
    except FileNotFoundError as error:
        raise LogDamaged(f"{directory} is missing") from error
    for name in names:
        is_used = name.startswith(generation) and name.endswith(SUFFIX) and name >= first
        (kept if is_used else refuse).append(name)
    for name in refuse:
        fs.remove(f"{directory}/{name}")
    if refuse:
        fs.sync_directory(directory)
    return kept


def _check_behind(directory: str, raw: bytes, segment: Segment, salt: int) -> None:
    """Check that no later batch states that the first unreadable record was durable."""
    broken = segment.last_index + 1
    for _, record in decode_behind(raw, segment.end, salt):
        if record.synced >= broken:
            raise LogDamaged(
                f"{directory}/{segment.name}: entry {broken} is unreadable, but entry "
                f"{record.entry.index} states that it was fsynced"
            )


def _rewrite(
    fs: FileSystem,
    directory: str,
    segments: Sequence[tuple[Segment, bytes]],
    segment_bytes: int,
) -> None:
    """Replace each segment by a new copy of its valid records."""
    for segment, raw in segments:
        records = raw[RECORDS_OFFSET : segment.end]
        file = create_segment(fs, directory, segment, bytes_reserved=segment_bytes, records=records)
        file.close()
