"""Check the manifest of a RocksDB database before RocksDB reads it.

RocksDB (9.8.4) verifies its records, with one exception: a flipped bit can change a record's type
into the type of a recycled log file, and RocksDB then searches for the next record forever. A node
with this damage would neither start nor report an error. The records are therefore scanned once
before the database is opened.

The format is that of LevelDB's logs (`doc/log_format.md` in its sources): blocks of 32 KiB that
contain records of a masked CRC32C, a length, a type and data; the rest of a block is zeros.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

import google_crc32c

BLOCK_BYTES: Final = 32 << 10
_HEADER: Final = Struct("<IHB")  # masked checksum of type and data, data bytes, type
_TYPES: Final = range(1, 5)  # whole, first part, middle part, last part
_MASK_DELTA: Final = 0xA282EAD8
_NOTHING: Final = bytes(_HEADER.size)
"""Header of zeros: a power loss can replace unsynced records by zeros, which RocksDB skips."""


class ManifestDamaged(Exception):
    """The manifest is missing or corrupt."""


def check_manifest(database: Path) -> None:
    """Check that RocksDB can read the manifest of a database directory, if there is one.

    An incomplete record at the end is left by a crash; RocksDB ignores it.

    Raises:
        ManifestDamaged: the manifest is missing or corrupt.
    """
    try:
        name = (database / "CURRENT").read_text(errors="replace").removesuffix("\n")
    except FileNotFoundError:
        return  # Without a file CURRENT, RocksDB creates a database or reports an error.
    try:
        raw = (database / name).read_bytes()
    except (OSError, ValueError) as error:
        raise ManifestDamaged(f"Corruption: CURRENT names {name!r}, which is missing") from error
    offset = 0
    while offset + _HEADER.size <= len(raw):
        left = BLOCK_BYTES - offset % BLOCK_BYTES
        if left < _HEADER.size or raw[offset : offset + _HEADER.size] == _NOTHING:
            offset += left
            continue
        end = _end_of_record(raw, offset)
        if end is None:
            if _is_torn(raw, offset):
                return
            raise ManifestDamaged(f"Corruption: {name} has no valid record at byte {offset}")
        offset = end


def _end_of_record(raw: bytes, offset: int) -> int | None:
    """Return the end of the record at ``offset``, or None if the record is invalid."""
    masked, size, kind = _HEADER.unpack_from(raw, offset)
    end: int = offset + _HEADER.size + size
    left_in_block = BLOCK_BYTES - offset % BLOCK_BYTES
    if kind not in _TYPES or end > min(offset + left_in_block, len(raw)):
        return None
    crc = google_crc32c.value(raw[offset + _HEADER.size - 1 : end])
    if masked != (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF:
        return None
    return end


def _is_torn(raw: bytes, offset: int) -> bool:
    """Return whether the record at ``offset`` is the last record and incomplete.

    A corrupt length may also make a record look incomplete. In that case valid records follow, and
    RocksDB would silently drop these records and open an earlier state.
    """
    _, size, kind = _HEADER.unpack_from(raw, offset)
    is_incomplete: bool = kind in _TYPES and offset + _HEADER.size + size > len(raw)
    behind = range(offset + 1, len(raw) - _HEADER.size + 1)
    return is_incomplete and all(_end_of_record(raw, each) is None for each in behind)
