"""Check the manifest of a RocksDB before RocksDB reads it.

RocksDB checks its records itself, but for one thing (9.8.4): whoever flips a bit in the type of a
record may turn it into that of a recycled log file, and RocksDB then looks for the next record for
ever. A node that never starts and never says why is worse than one that refuses to start. So the
records are walked here once, before the database is opened.

The format is that of LevelDB's logs (`doc/log_format.md` in its sources): blocks of 32 KiB, and in
them records of a masked CRC32C, a length, a type and data; what is left of a block is zeros.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

import google_crc32c

BLOCK_BYTES: Final = 32 << 10
_HEADER: Final = Struct("<IHB")  # masked crc of type and data, data bytes, type
_TYPES: Final = range(1, 5)  # whole, first part, middle part, last part
_MASK_DELTA: Final = 0xA282EAD8
_NOTHING: Final = bytes(_HEADER.size)
"""What a power loss may leave in place of a record that was not synced; RocksDB skips it."""


class ManifestDamaged(Exception):
    """The manifest is not what RocksDB wrote, or is missing."""


def check_manifest(database: Path) -> None:
    """Make sure that RocksDB can read the manifest in the directory of a database, if it has one.

    An incomplete record at the end is what a crash leaves; RocksDB ignores it.

    Raises:
        ManifestDamaged: it cannot.
    """
    try:
        name = (database / "CURRENT").read_text(errors="replace").removesuffix("\n")
    except FileNotFoundError:
        return  # RocksDB decides whether that may be.
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
    """Return where the record at ``offset`` ends; None if there is no valid one."""
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
    """Tell whether the record at ``offset`` is the last one and incomplete.

    Its length may also be longer than it was written: then there are valid records behind it,
    which RocksDB would leave out without a word, and open an earlier state.
    """
    _, size, kind = _HEADER.unpack_from(raw, offset)
    is_incomplete: bool = kind in _TYPES and offset + _HEADER.size + size > len(raw)
    behind = range(offset + 1, len(raw) - _HEADER.size + 1)
    return is_incomplete and all(_end_of_record(raw, each) is None for each in behind)
