"""Read a whole RocksDB table file and check every block against its checksum.

The library has no call for this check: an iterator reads only blocks with live keys, takes blocks
from the block cache, and never reads the filter. So the blocks are found and checked here. The
format is that of RocksDB's block-based tables (`table/format.cc` in its sources), version 6, with
one index and with the checksum CRC32C, which the node chooses for its tables. A block has a trailer
of five bytes: the type of its compression, and the masked checksum of block and type. A value that
depends on the file and the offset is added to the checksum.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import Struct
from typing import Final, NamedTuple

import google_crc32c
import lz4.block

from taskraft_replication.storage.direct_reader import DirectReader
from taskraft_service import wire

STEP_BYTES: Final = 128 << 10
"""Bytes of blocks that are read and checked between two yields."""
_FOOTER_BYTES: Final = 53
_TRAILER_BYTES: Final = 5
_MAGIC: Final = 0x88E241B785F4CFF7
_EXTENDED_MAGIC: Final = b"\x3e\x00\x7a\x00"
_CRC32C: Final = 1
_VERSION: Final = 6
_UNCOMPRESSED: Final = 0
_LZ4: Final = 4
_MASK_DELTA: Final = 0xA282EAD8
_MASK: Final = 0xFFFFFFFF
_end: Final = Struct("<IQ")  # format version, magic
_extended: Final = Struct("<4sIII")  # magic, own checksum, checksum of context, metaindex bytes


class BlockDamaged(Exception):
    """A block, or the footer, fails its check."""

    def __init__(self, offset: int, expected: str, actual: str) -> None:
        super().__init__(f"block at byte {offset}: expected {expected}, found {actual}")
        self.offset = offset
        self.expected = expected
        self.actual = actual


class TableUnknown(Exception):
    """The file has a format that this version cannot check; it need not be damaged."""


class _Handle(NamedTuple):
    """Place of a block, without its trailer."""

    offset: int
    size: int


def check_table(file: DirectReader) -> Generator[int, None, None]:
    """Check all blocks of a table; yield the number of bytes read since the last yield.

    Raises:
        BlockDamaged: a block fails its checksum.
        TableUnknown: the format cannot be checked.
        OSError: the disk cannot read the file.
    """
    context, metaindex = _read_footer(file)
    raw = _check_block(file, metaindex, context)
    yield len(raw) + _FOOTER_BYTES
    handles = {name: _handle(value) for name, value in _metaindex_entries(raw, metaindex)}
    index = handles.pop(b"rocksdb.index", None)
    if index is None:
        raise BlockDamaged(metaindex.offset, "the place of an index", "none")
    for handle in handles.values():
        yield len(_check_block(file, handle, context))
    packed = _check_block(file, index, context)
    yield len(packed)
    try:
        content = _content(packed)
        blocks: list[_Handle] = []
        for _, handle in _index_entries(content):
            blocks.append(handle)
            if len(blocks) % 256 == 0:
                yield 0
    except (lz4.block.LZ4BlockError, wire.WireMalformed, IndexError) as error:
        raise BlockDamaged(index.offset, "an index", str(error)) from error
    yield from _check_blocks(file, blocks, context)


def _read_footer(file: DirectReader) -> tuple[int, _Handle]:
    """Return the context number (0: none), see ``_context_of``, and the place of the metaindex."""
    offset = file.size - _FOOTER_BYTES
    raw = file.read(max(offset, 0), _FOOTER_BYTES)
    if len(raw) < _FOOTER_BYTES:
        raise BlockDamaged(0, f"at least {_FOOTER_BYTES} bytes", f"{len(raw)}")
    version, magic = _end.unpack(raw[-_end.size :])
    if magic != _MAGIC:
        raise BlockDamaged(offset, f"the end mark {_MAGIC:016x}", f"{magic:016x}")
    if raw[0] != _CRC32C or version != _VERSION:
        raise TableUnknown(f"the table has checksum type {raw[0]} and version {version}")
    extended, crc, context, size = _extended.unpack_from(raw, 1)
    if extended != _EXTENDED_MAGIC:
        raise BlockDamaged(offset, f"{_EXTENDED_MAGIC.hex()} in the footer", extended.hex())
    blank = raw[:5] + bytes(4) + raw[9:]
    found = _masked(blank) + _context_of(context, offset) & _MASK
    if found != crc:
        raise BlockDamaged(offset, f"checksum {crc:08x} of the footer", f"{found:08x}")
    return context, _Handle(offset - size - _TRAILER_BYTES, size)


def _masked(raw: bytes) -> int:
    """Return the CRC32C of bytes in the form that RocksDB stores: rotated, plus a constant."""
    crc: int = google_crc32c.value(raw)
    return (crc >> 15 | crc << 17) + _MASK_DELTA & _MASK


def _context_of(context: int, offset: int) -> int:
    """Return the number that the table adds to the checksum of the block at an offset.

    The number depends on the random context number of the table, so that a block of another table
    or place fails the check.
    """
    return context ^ ((offset & _MASK) + (offset >> 32) & _MASK) if context else 0


def _check_block(file: DirectReader, handle: _Handle, context: int) -> bytes:
    """Read one block and check it; return the block with its trailer."""
    raw = file.read(handle.offset, handle.size + _TRAILER_BYTES)
    _check(raw, handle, context)
    return raw


def _check(raw: bytes, handle: _Handle, context: int) -> None:
    """Check the bytes of a block with its trailer."""
    offset, size = handle
    if len(raw) != size + _TRAILER_BYTES:
        raise BlockDamaged(offset, f"{size + _TRAILER_BYTES} bytes", f"{len(raw)} bytes")
    found = _masked(raw[: size + 1]) + _context_of(context, offset) & _MASK
    expected = int.from_bytes(raw[size + 1 :], "little")
    if found != expected:
        raise BlockDamaged(offset, f"checksum {expected:08x}", f"{found:08x}")


def _check_blocks(file: DirectReader, blocks: list[_Handle], context: int) -> Iterator[int]:
    """Check data blocks, many with each read; the blocks follow each other in the file."""
    first = 0
    while first < len(blocks):
        start = blocks[first].offset
        last = first
        while last < len(blocks) and blocks[last].offset + blocks[last].size <= start + STEP_BYTES:
            last += 1
        last = max(last, first + 1)
        end = blocks[last - 1].offset + blocks[last - 1].size + _TRAILER_BYTES
        raw = file.read(start, end - start)
        for handle in blocks[first:last]:
            at = handle.offset - start
            _check(raw[at : at + handle.size + _TRAILER_BYTES], handle, context)
        first = last
        yield len(raw)


def _content(raw: bytes) -> bytes:
    """Return the content of a block, decompressed."""
    kind = raw[-_TRAILER_BYTES]
    packed = raw[:-_TRAILER_BYTES]
    if kind == _UNCOMPRESSED:
        return packed
    if kind != _LZ4:
        raise TableUnknown(f"the index has compression type {kind}")
    size, at = wire.read_varint(packed, 0)
    content: bytes = lz4.block.decompress(packed[at:], uncompressed_size=size)
    return content


def _handle(raw: bytes) -> _Handle:
    offset, at = wire.read_varint(raw, 0)
    size, _ = wire.read_varint(raw, at)
    return _Handle(offset, size)


def _entries_end(block: bytes) -> int:
    """Return the offset after the last entry of a block, where the restart points begin."""
    restarts = int.from_bytes(block[-4:], "little") & 0x0FFFFFFF
    return len(block) - 4 - 4 * restarts


def _metaindex_entries(raw: bytes, handle: _Handle) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and values of the metaindex, which is never compressed."""
    block = raw[: handle.size]
    at, end, key = 0, _entries_end(block), b""
    while at < end:
        shared, at = wire.read_varint(block, at)
        own, at = wire.read_varint(block, at)
        size, at = wire.read_varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        name = key
        yield name, block[at : at + size]
        at += size


def _index_entries(block: bytes) -> Iterator[tuple[bytes, _Handle]]:
    """Yield the last key and the place of each data block, from an index of complete entries.

    The key is one from the last key of its block up to the first key of the next block. The
    interval of restart points of an index is 1, so no entry depends on the entry before.
    """
    at, end = 0, _entries_end(block)
    read_varint = wire.read_varint
    while at < end:
        shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        if shared:
            raise TableUnknown("the index has entries that depend on each other")
        key = block[at : at + own]
        offset, at = read_varint(block, at + own)
        size, at = read_varint(block, at)
        yield key, _Handle(offset, size)


def damaged_ranges(file: DirectReader, whole: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the ranges of keys that may be in damaged blocks, each with first and last key.

    Args:
        file: the table.
        whole: first and last key of the table; damage outside of data blocks hides all keys.
    """
    try:
        context, metaindex = _read_footer(file)
        raw = _check_block(file, metaindex, context)
        handles = {name: _handle(value) for name, value in _metaindex_entries(raw, metaindex)}
        packed = [_check_block(file, handle, context) for handle in handles.values()]
        index = packed[[*handles].index(b"rocksdb.index")]
        blocks = list(_index_entries(_content(index)))
    except (BlockDamaged, TableUnknown, wire.WireMalformed, ValueError, IndexError):
        return [whole]
    found: list[tuple[bytes, bytes]] = []
    before = whole[0]
    for key, handle in blocks:
        try:
            _check_block(file, handle, context)
        except BlockDamaged:
            found.append((before, min(key, whole[1])))
        before = key
    return found
