"""Remember how far the log was synced, in a file beside it.

Without the mark nobody can tell a torn tail, which may be cut, from lost promises, which may not
(Protocol-Aware Recovery, FAST 2018). It is written after each sync of the log but synced seldom: it
trails. What it does not cover yet is covered by the next batch (see ``record``).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import google_crc32c

from taskraft_replication.core.types import LogIndex, Term, value
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.filesystem import File, FileSystem

_SLOT: Final = Struct("<QQQQII")  # sequence, generation, index, term, crc of the entry, crc of this
_SLOT_DISTANCE: Final = 4096
"""The two slots lie on different pages, so that a torn write spoils at most one."""


@value
class Mark:
    """The log was synced up to ``index``, whose record has the checksum ``crc``."""

    generation: int
    index: LogIndex
    term: Term
    crc: int


class MarkFile:
    """Two slots; the valid one with the higher sequence counts.

    One holds the last mark that was synced, and only the other one is written: whatever a power
    loss makes of that, no mark from before the synced one can count. After a cut of the log such a
    mark would vouch for entries that are gone.
    """

    def __init__(self, file: File, sequence: int, place: int, current: Mark) -> None:
        self._file = file
        self._sequence = sequence
        self._place = place
        """Where the slot begins that is written next."""
        self._is_synced = True
        self.current = current

    @classmethod
    def create(cls, fs: FileSystem, name: str, mark: Mark) -> MarkFile:
        """Create the file with a first mark, durably."""
        file = fs.create(name)
        file.allocate(2 * _SLOT_DISTANCE)
        created = cls(file, 0, 0, mark)
        created.write(mark)
        created.sync()
        fs.sync_directory(name.rpartition("/")[0])
        return created

    @classmethod
    def open(cls, fs: FileSystem, name: str) -> MarkFile:
        """Open the file and find the mark that counts.

        Raises:
            LogDamaged: the file is missing or neither slot is valid.
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
        # After a failed sync the page cache shows a mark that the disk does not have.
        file.write(place, slots[place])
        file.sync()
        return cls(file, sequence, _SLOT_DISTANCE - place, mark)

    def write(self, mark: Mark) -> None:
        """Write the mark; it survives a kill of the process, but no power loss before ``sync``."""
        self._sequence += 1
        body = (self._sequence, mark.generation, mark.index, mark.term, mark.crc)
        crc = google_crc32c.value(_SLOT.pack(*body, 0)[:-4])
        self._file.write(self._place, _SLOT.pack(*body, crc))
        self.current = mark
        self._is_synced = False

    def sync(self) -> None:
        """Make the last mark durable, if it is not."""
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
