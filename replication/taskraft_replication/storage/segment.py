"""Hold one stretch of the log in one file of bounded size.

A segment is prepared under another name and renamed when its header is synced, so that a file with
a segment's name always has a valid header. Its blocks are reserved beforehand: a sync then writes
no new metadata and costs half.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Final

import google_crc32c

from taskraft_replication.core.types import LogIndex
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.filesystem import File, FileSystem

SEGMENT_BYTES: Final = 16 << 20
"""Size that is reserved for a segment; only a single larger batch makes it longer."""

_HEADER: Final = Struct("<8sQQII")  # magic, generation, first index, crc before, crc of this
_MAGIC: Final = b"TASKRFT\x01"
RECORDS_OFFSET: Final = 64
"""Where the first record begins."""

SUFFIX: Final = ".log"


def segment_name(generation: int, first_index: LogIndex) -> str:
    """Return the name of a segment's file; names sort like the segments."""
    return f"{generation:08x}-{first_index:016x}{SUFFIX}"


class Segment:
    """One file of the log, and where each of its records begins.

    ``offsets`` has one more number than there are records: the end of the last one.
    """

    __slots__ = ("crc_before", "first_index", "generation", "name", "offsets")

    def __init__(self, name: str, generation: int, first_index: LogIndex, crc_before: int) -> None:
        self.name = name
        self.generation = generation
        self.first_index = first_index
        self.crc_before = crc_before
        self.offsets = array("Q", (RECORDS_OFFSET,))

    @property
    def last_index(self) -> LogIndex:
        """The index of the last record; one before ``first_index`` if there is none."""
        return LogIndex(self.first_index + len(self.offsets) - 2)

    @property
    def end(self) -> int:
        """Where the next record goes."""
        return self.offsets[-1]

    def extent(self, lo: LogIndex, hi: LogIndex, bytes_max: int) -> tuple[int, int]:
        """Return offset and size of the records of entries ``lo`` to below ``hi`` that fit.

        At least one record fits; sizes are of the records, a little above those of the data.
        """
        offsets = self.offsets
        first = lo - self.first_index
        last = min(hi, self.last_index + 1) - self.first_index
        begin = offsets[first]
        behind = bisect_right(offsets, begin + bytes_max, first + 2, last + 1)
        return begin, offsets[behind - 1] - begin

    def note(self, sizes: Iterable[int]) -> None:
        """Add records of these sizes at the end."""
        end = self.offsets[-1]
        for size in sizes:
            end += size
            self.offsets.append(end)

    def forget_after(self, index: LogIndex) -> None:
        """Drop the records behind ``index``."""
        del self.offsets[index - self.first_index + 2 :]


def create_segment(
    fs: FileSystem, directory: str, segment: Segment, *, bytes_reserved: int, records: bytes = b""
) -> File:
    """Create the file of a segment with its header and first records, durably; return it open."""
    temporary = f"{directory}/{segment.name}.new"
    header = _HEADER.pack(_MAGIC, segment.generation, segment.first_index, segment.crc_before, 0)
    header = header[:-4] + google_crc32c.value(header[:-4]).to_bytes(4, "little")
    file = fs.create(temporary)
    file.allocate(max(bytes_reserved, RECORDS_OFFSET + len(records)))
    file.write(0, header)
    if records:
        file.write(RECORDS_OFFSET, records)
    file.sync()
    fs.rename(temporary, f"{directory}/{segment.name}")
    fs.sync_directory(directory)
    return file


def read_segment(fs: FileSystem, directory: str, name: str) -> tuple[Segment, bytes]:
    """Return a segment as its header describes it, records not yet noted, and the file's content.

    Raises:
        LogDamaged: the header is unreadable or contradicts the name.
    """
    raw = fs.read(f"{directory}/{name}")
    if len(raw) < RECORDS_OFFSET or raw[:8] != _MAGIC:
        raise LogDamaged(f"{directory}/{name} has no readable header")
    _, generation, first_index, crc_before, crc = _HEADER.unpack_from(raw)
    if google_crc32c.value(raw[: _HEADER.size - 4]) != crc:
        raise LogDamaged(f"the header of {directory}/{name} fails its checksum")
    segment = Segment(name, generation, LogIndex(first_index), crc_before)
    if segment_name(generation, segment.first_index) != name:
        raise LogDamaged(f"{directory}/{name} holds entries from {first_index}")
    return segment, raw
