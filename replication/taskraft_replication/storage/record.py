"""Encode entries as records of the log, and find the end of the valid records.

A record is a header, the entry's data, and zeros up to a multiple of eight bytes. Each record
contains the checksum of the previous record, so a missing, foreign or outdated record is detected.
Each record is also valid on its own, so recovery can find records after a damaged one. A record
also stores two values from the time of writing: the index up to which the log was durable
(``synced``), and the commit index. The first value proves that earlier batches were complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import google_crc32c

from taskraft_replication.core.config import ENTRY_BYTES_MAX
from taskraft_replication.core.types import Entry, EntryKind, LogIndex, value
from taskraft_replication.errors import EntryTooLarge

_PREFIX: Final = Struct("<4sI")  # magic, checksum of all bytes between this header and the padding
_FACTS: Final = Struct("<IIQQQQB7x")  # previous crc, data bytes, index, term, synced, commit, kind
_MAGIC: Final = b"\xf5TR\x01"
_HEADER: Final = Struct(_PREFIX.format + _FACTS.format[1:])
HEADER_BYTES: Final = _HEADER.size
_PADDING: Final = tuple(bytes(-size % 8) for size in range(8))
_KINDS: Final = tuple(EntryKind(number) for number in range(len(EntryKind)))


@value
class Record:
    """A decoded record."""

    entry: Entry
    crc: int
    crc_before: int
    synced: LogIndex
    commit: LogIndex
    size: int


@value
class EncodedBatch:
    """Records that are written in one piece."""

    data: bytes
    sizes: Sequence[int]
    crc: int
    """Checksum of the last record."""


def encode_batch(
    entries: Sequence[Entry],
    *,
    salt: int,
    crc_before: int,
    synced: LogIndex,
    commit: LogIndex,
) -> EncodedBatch:
    """Encode ``entries`` as records that continue the chain after ``crc_before``.

    Raises:
        EntryTooLarge: ``decode_record`` would treat an entry as damage; nothing may be written.
    """
    parts: list[bytes] = []
    sizes: list[int] = []
    crc = crc_before
    extend = google_crc32c.extend
    for entry in entries:
        data = entry.data
        size = len(data)
        if size > ENTRY_BYTES_MAX:
            raise EntryTooLarge(entry.index, size, ENTRY_BYTES_MAX)
        kind = 0 if entry.kind is EntryKind.NORMAL else entry.kind.value
        facts = _FACTS.pack(crc, size, entry.index, entry.term, synced, commit, kind)
        crc = extend(extend(salt, facts), data)
        parts.append(_PREFIX.pack(_MAGIC, crc) + facts)
        parts.append(data)
        parts.append(_PADDING[size % 8])
        sizes.append(record_bytes(size))
    return EncodedBatch(b"".join(parts), sizes, crc)


def record_bytes(data_bytes: int) -> int:
    """Return the length of a record with ``data_bytes`` of data."""
    return HEADER_BYTES + data_bytes + -data_bytes % 8


def decode_record(raw: bytes, offset: int, salt: int) -> Record | None:
    """Return the record at ``offset``, or None if there is no valid record.

    A length above ``ENTRY_BYTES_MAX`` is damage, because ``encode_batch`` writes no such record.
    """
    data_at = offset + HEADER_BYTES
    if data_at > len(raw):
        return None
    header = _HEADER.unpack_from(raw, offset)
    magic, crc, crc_before, size, index, term, synced, commit, kind = header
    end = data_at + size
    if magic != _MAGIC or size > ENTRY_BYTES_MAX or end > len(raw) or kind >= len(_KINDS):
        return None
    if google_crc32c.extend(salt, raw[offset + _PREFIX.size : end]) != crc:
        return None
    entry = Entry(term, index, raw[data_at:end], _KINDS[kind])
    return Record(entry, crc, crc_before, synced, commit, HEADER_BYTES + size + -size % 8)


def decode_chain(
    raw: bytes, offset: int, salt: int, crc_before: int, index: LogIndex
) -> Iterator[Record]:
    """Yield consecutive records from ``offset``, starting with entry ``index``."""
    while True:
        record = decode_record(raw, offset, salt)
        if record is None or record.crc_before != crc_before or record.entry.index != index:
            return
        yield record
        offset += record.size
        crc_before = record.crc
        index = LogIndex(index + 1)


def decode_behind(raw: bytes, offset: int, salt: int) -> Iterator[tuple[int, Record]]:
    """Yield every valid record from ``offset`` on with its offset, consecutive or not."""
    while True:
        offset = raw.find(_MAGIC, offset)
        if offset < 0:
            return
        record = decode_record(raw, offset, salt) if offset % 8 == 0 else None
        if record is None:
            offset += 4
            continue
        yield offset, record
        offset += record.size
