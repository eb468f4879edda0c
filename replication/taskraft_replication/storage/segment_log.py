"""Write the log: append, truncate and trim; used by the storage worker.

An ``OSError`` from this module is final. After a failed fsync the content of the disk is unknown
(Can Applications Recover from fsync Failures?, ATC 2020), so the process must end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from taskraft_replication.core.errors import Compacted
from taskraft_replication.core.types import Entry, LogIndex, Term
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.filesystem import File, FileSystem
from taskraft_replication.storage.mark import Mark, MarkFile
from taskraft_replication.storage.metadata import LogStart, Metadata
from taskraft_replication.storage.record import Record, decode_record, encode_batch
from taskraft_replication.storage.segment import (
    SEGMENT_BYTES,
    Segment,
    create_segment,
    segment_name,
)

LOG_DIRECTORY: Final = "log"


class SegmentLog:
    """The segments of one group.

    ``segments`` is replaced and never changed in place, so the event loop can read while the worker
    writes. Between two calls, all entries up to ``last_index`` are durable.
    """

    def __init__(
        self,
        fs: FileSystem,
        metadata: Metadata,
        mark: MarkFile,
        *,
        segments: tuple[Segment, ...] = (),
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._fs = fs
        self._metadata = metadata
        self._mark = mark
        self.directory = f"{metadata.directory}/{LOG_DIRECTORY}"
        self._segment_bytes = segment_bytes
        self.salt = metadata.salt()
        self._active: File | None = None
        self.start = metadata.log_start()
        self.segments = segments
        self.last_index = segments[-1].last_index if segments else self.start.index
        self._last_crc = mark.current.crc
        if segments:
            self._active = fs.open(f"{self.directory}/{segments[-1].name}")

    def append(self, entries: Sequence[Entry], commit: LogIndex) -> int:
        """Store ``entries`` with one fsync; return the number of bytes written.

        Existing entries from the first index of ``entries`` on are truncated first.
        """
        first = entries[0].index
        if first <= self.last_index:
            self._cut_after(LogIndex(first - 1))
        assert first == self.last_index + 1, "the entries must follow the log"
        batch = encode_batch(
            entries,
            salt=self.salt,
            crc_before=self._last_crc,
            synced=self.last_index,
            commit=commit,
        )
        size = len(batch.data)
        active, segment = self._active, self.segments[-1] if self.segments else None
        end = 0 if segment is None else segment.end
        if active is None or segment is None or end + size > self._segment_bytes:
            segment = self._begin_segment(first, batch.data)
        else:
            active.write_through(end, batch.data)
        segment.note(batch.sizes)
        self.last_index = entries[-1].index
        self._last_crc = batch.crc
        self._mark.write(Mark(self.start.generation, self.last_index, entries[-1].term, batch.crc))
        return size

    def sync_mark(self) -> None:
        """Make the mark durable if it has changed; called when the worker is idle."""
        self._mark.sync()

    def trimmed_to(self, index: LogIndex) -> LogIndex:
        """Return the last index to trim so that entries after ``index`` stay: whole segments only.

        The entry after ``index`` must be committed. Otherwise a truncation that is queued before
        the trim could remove the segments that stay, and new entries would be appended to a segment
        that the trim deletes. Safe to call on the event loop.
        """
        reached = self.start.index
        for segment in self.segments[:-1]:
            if segment.last_index > index:
                break
            reached = segment.last_index
        return reached

    def beyond(self, bytes_max: int) -> LogIndex:
        """Return the last entry after which whole segments have at most ``bytes_max`` bytes.

        Safe to call on the event loop.
        """
        kept = 0
        for segment in reversed(self.segments):
            kept += segment.end
            if kept > bytes_max:
                return segment.last_index
        return self.start.index

    def trim(self, start: LogStart) -> None:
        """Delete the segments before ``start``, which ``trimmed_to`` has returned."""
        if start.generation != self.start.generation:
            return  # The whole log was replaced in the meantime.
        assert start.index >= self.start.index
        self._metadata.save_log_start(start)
        self.start = start
        gone = [each for each in self.segments if each.first_index <= start.index]
        assert all(each.last_index <= start.index for each in gone), "later entries would be lost"
        self.segments = self.segments[len(gone) :]
        self._remove(gone)

    def reset(self, index: LogIndex, term: Term) -> None:
        """Replace the whole log by a snapshot that covers all entries up to ``index``.

        The replacement takes effect when the log start with the new generation is written.
        """
        gone = self.segments
        self.start = LogStart(self.start.generation + 1, index, term)
        self._metadata.save_log_start(self.start)
        self.segments = ()
        self._close_active()
        self.last_index = index
        self._last_crc = 0
        self._mark.write(Mark(self.start.generation, index, term, 0))
        self._mark.sync()
        self._remove(gone)

    def read(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> list[Entry]:
        """Read entries from ``lo`` to below ``hi`` from the files: at least one, possibly not all.

        Raises:
            Compacted: the entries were trimmed.
            LogDamaged: the entries are unreadable.
        """
        return [record.entry for record in self._records(lo, hi, bytes_max)]

    def _records(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> list[Record]:
        """Return the records of the entries that ``read`` returns."""
        segments = self.segments
        place = bisect_right(segments, lo, key=lambda each: each.first_index) - 1
        if place < 0:
            raise Compacted
        segment = segments[place]
        begin, size = segment.extent(lo, hi, bytes_max)
        try:
            file = self._fs.open(f"{self.directory}/{segment.name}")
        except FileNotFoundError as error:
            raise Compacted from error
        try:
            raw = file.read(begin, size)
        finally:
            file.close()
        records: list[Record] = []
        offset = 0
        while offset < size:
            record = decode_record(raw, offset, self.salt)
            if record is None or record.entry.index != lo + len(records):
                path = f"{self.directory}/{segment.name}"
                raise LogDamaged(f"{path}: entry {lo + len(records)} is unreadable")
            records.append(record)
            offset += record.size
        return records

    def close(self) -> None:
        """Make the mark durable and close the files."""
        self.sync_mark()
        self._close_active()
        self._mark.close()

    def _begin_segment(self, first: LogIndex, records: bytes) -> Segment:
        """Create the next segment together with its first records, with one fsync."""
        name = segment_name(self.start.generation, first)
        segment = Segment(name, self.start.generation, first, self._last_crc)
        self._close_active()
        self._active = create_segment(
            self._fs,
            self.directory,
            segment,
            bytes_reserved=self._segment_bytes,
            records=records,
        )
        self.segments = (*self.segments, segment)
        return segment

    def _cut_after(self, index: LogIndex) -> None:
        """Truncate the log after ``index``.

        The mark is moved back first, so after a crash in between the log is longer than the mark
        says, and never shorter. Segments are deleted newest first, each durably, so that no gap can
        appear.
        """
        assert self.start.index <= index < self.last_index
        term, crc = self._term_and_crc(index)
        self._mark.write(Mark(self.start.generation, index, term, crc))
        self._mark.sync()
        self._close_active()
        while self.segments and self.segments[-1].first_index > index:
            newest = self.segments[-1]
            self.segments = self.segments[:-1]
            self._remove([newest])
        if self.segments:
            segment = self.segments[-1]
            self._active = self._fs.open(f"{self.directory}/{segment.name}")
            if segment.last_index > index:
                segment.forget_after(index)
                # Also remove the bytes, so that recovery does not find records of the old suffix.
                self._active.truncate(segment.end)
                self._active.allocate(max(self._segment_bytes, segment.end))
                self._active.sync()
        self.last_index = index
        self._last_crc = crc

    def _term_and_crc(self, index: LogIndex) -> tuple[Term, int]:
        """Return term and checksum of the entry at ``index`` for the mark."""
        if index == self.start.index:
            return self.start.term, self.segments[0].crc_before
        (record,) = self._records(index, LogIndex(index + 1), 0)
        return record.entry.term, record.crc

    def _remove(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._fs.remove(f"{self.directory}/{segment.name}")
        if segments:
            self._fs.sync_directory(self.directory)

    def _close_active(self) -> None:
        if self._active is not None:
            self._active.close()
            self._active = None
