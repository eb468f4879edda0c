"""Write a complete log beside a damaged one, and replace the damaged log in one step."""

from __future__ import annotations

from collections.abc import Sequence

from taskraft_replication.core.types import Entry, LogIndex
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.storage.metadata import LogStart, Metadata
from taskraft_replication.storage.record import encode_batch, record_bytes
from taskraft_replication.storage.segment import (
    SEGMENT_BYTES,
    Segment,
    create_segment,
    segment_name,
    segment_prefix,
)
from taskraft_replication.storage.segment_log import LOG_DIRECTORY


class LogCopy:
    """Segments of the next generation, which count once ``finish`` has written the log start.

    After a crash before ``finish``, the next start deletes the copy; after a crash later, it
    deletes the damaged log.

    Args:
        fs: the data directory.
        metadata: the small files of the member.
        start: the start of the new log; its generation is that of the damaged log.
        commit: a commit index that is known.
        segment_bytes: size of a segment; one larger entry makes a segment longer.
    """

    def __init__(
        self,
        fs: FileSystem,
        metadata: Metadata,
        start: LogStart,
        commit: LogIndex,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._fs = fs
        self._metadata = metadata
        self._directory = f"{metadata.directory}/{LOG_DIRECTORY}"
        self._start = LogStart(start.generation + 1, start.index, start.term)
        self._commit = commit
        self._segment_bytes = segment_bytes
        self._salt = metadata.salt()
        self._last, self._last_crc = start.index, 0
        self._waiting: list[Entry] = []
        self._waiting_bytes = 0
        self.discard()

    def add(self, entries: Sequence[Entry]) -> None:
        """Append entries, which continue the copy."""
        for entry in entries:
            assert entry.index == self._last + 1, "the entries must follow the copy"
            size = record_bytes(len(entry.data))
            if self._waiting and self._waiting_bytes + size > self._segment_bytes:
                self._write()
            self._waiting.append(entry)
            self._waiting_bytes += size
            self._last = entry.index

    def finish(self) -> None:
        """Replace the damaged log by the copy, durably."""
        if self._waiting:
            self._write()
        self._metadata.save_log_start(self._start)

    def discard(self) -> None:
        """Delete the segments of the copy."""
        prefix = segment_prefix(self._start.generation)
        gone = [name for name in self._fs.names(self._directory) if name.startswith(prefix)]
        for name in gone:
            self._fs.remove(f"{self._directory}/{name}")
        if gone:
            self._fs.sync_directory(self._directory)

    def _write(self) -> None:
        """Write the waiting entries as one segment."""
        first = self._waiting[0].index
        batch = encode_batch(
            self._waiting,
            salt=self._salt,
            crc_before=self._last_crc,
            synced=LogIndex(first - 1),
            commit=self._commit,
        )
        name = segment_name(self._start.generation, first)
        segment = Segment(name, self._start.generation, first, self._last_crc)
        create_segment(
            self._fs,
            self._directory,
            segment,
            bytes_reserved=self._segment_bytes,
            records=batch.data,
        ).close()
        self._last_crc = batch.crc
        self._waiting, self._waiting_bytes = [], 0
