"""Store the index up to which the log is known to be durable, in a separate file.

Recovery needs this mark to tell a torn tail, which may be truncated, from damage to acknowledged
entries, which must stop the node (Protocol-Aware Recovery, FAST 2018). The mark is written after
each fsync of the log but is rarely fsynced itself, so it lags behind the log. For records past the
mark, the next batch contains the index that was durable before the batch (see ``record``).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import google_crc32c

from taskraft_replication.core.types import LogIndex, Term, value
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.filesystem import File, FileSystem

_SLOT: Final = Struct("<QQQQII")  # sequence, generation, index, term, entry's crc, own crc
_SLOT_DISTANCE: Final = 4096
"""The slots are on different pages, so that a torn write damages at most one of them."""


@value
class Mark:
    """The log is durable up to ``index``; the record of that entry has the checksum ``crc``."""

    generation: int
    index: LogIndex
    term: Term
    crc: int


class MarkFile:
    """A file with two slots; the valid slot with the higher sequence number counts.

    One slot holds the last durable mark, and only the other slot is written. A power loss can
    damage only that slot, so a mark older than the durable mark is never used. After the log was
    truncated, an older mark would cover entries that no longer exist.
    """

    def __init__(self, file: File, sequence: int, place: int, current: Mark) -> None:
        self._file = file
        self._sequence = sequence
        self._place = place
        """Offset of the slot that is written next."""
        self._is_synced = True
        self.current = current

    @classmethod
    def create(cls, fs: FileSystem, name: str, mark: Mark) -> MarkFile:
        """Create the file with its first mark, durably."""
        file = fs.create(name)
        file.allocate(2 * _SLOT_DISTANCE)
        created = cls(file, 0, 0, mark)
        created.write(mark)
        created.sync()
        fs.sync_directory(name.rpartition("/")[0])
        return created

    @classmethod
    def open(cls, fs: FileSystem, name: str) -> MarkFile:
        """Open the file and read the current mark.

        Raises:
            LogDamaged: the file is missing, or neither slot is valid.
        """
        try:
            file = fs.open(name)
        except FileNotFoundError as error:
            raise LogDamaged(f"{name} is missing") from error
        slots = {place: file.read(place, _SLOT.size) for place in (0, _SLOT_DISTANCE)}
        valid = [(*found, place) for place, raw in slots.items() if (found := _decode(raw))]
        if not valid:
            raise LogDamaged(f"{name} is unreadable")
        sequence, mark, place = max(valid, key=lambda slot: slot[0])
        # Rewrite and fsync the slot that was read: after a failed fsync, the page cache can hold a
        # mark that is not on disk.
        file.write(place, slots[place])
        file.sync()
        return cls(file, sequence, _SLOT_DISTANCE - place, mark)

    def write(self, mark: Mark) -> None:
        """Write the mark; it survives a crash of the process, and after ``sync`` a power loss."""
        self._sequence += 1
        body = (self._sequence, mark.generation, mark.index, mark.term, mark.crc)
        crc = google_crc32c.value(_SLOT.pack(*body, 0)[:-4])
        self._file.write(self._place, _SLOT.pack(*body, crc))
        self.current = mark
        self._is_synced = False

    def sync(self) -> None:
        """Make the last written mark durable."""
        if not self._is_synced:
            self._file.sync()
            self._place = _SLOT_DISTANCE - self._place
            self._is_synced = True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _decode(raw: bytes) -> tuple[int, Mark] | None:
    if len(raw) < _SLOT.size:
        return None
    sequence, generation, index, term, entry_crc, crc = _SLOT.unpack(raw)
    if google_crc32c.value(raw[:-4]) != crc:
        return None
    return sequence, Mark(generation, LogIndex(index), Term(term), entry_crc)
