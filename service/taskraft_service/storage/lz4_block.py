"""Decompress an LZ4 block in small steps.

RocksDB compresses the index of a table with LZ4. The index is a hundredth of the table, so plain
Python is fast enough, and the steps leave the interpreter to the event loop in between.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

STEP_SEQUENCES: Final = 256
"""Sequences between two yields; takes some tenths of a millisecond."""
_MATCH_MIN: Final = 4
_LONG: Final = 15


class BlockMalformed(Exception):
    """The bytes are not an LZ4 block."""


def decompress(packed: bytes, at: int) -> Generator[None, None, bytes]:
    """Return the content of the block that begins at byte ``at``; yield between steps.

    Raises:
        BlockMalformed: the bytes are not an LZ4 block.
    """
    out = bytearray()
    count = 0
    try:
        while True:
            token = packed[at]
            at, literals = _length(packed, at + 1, token >> 4)
            out += packed[at : at + literals]
            at += literals
            if at >= len(packed):
                break
            back = packed[at] | packed[at + 1] << 8
            at, length = _length(packed, at + 2, token & _LONG)
            _copy(out, back, length + _MATCH_MIN)
            count += 1
            if count % STEP_SEQUENCES == 0:
                yield
    except IndexError as error:
        raise BlockMalformed("the LZ4 block is cut off") from error
    if at != len(packed):
        raise BlockMalformed("the LZ4 block is cut off")
    return bytes(out)


def _length(packed: bytes, at: int, length: int) -> tuple[int, int]:
    """Return the offset after a length, and the length."""
    if length == _LONG:
        more = 255
        while more == 255:
            more = packed[at]
            at += 1
            length += more
    return at, length


def _copy(out: bytearray, back: int, length: int) -> None:
    """Append ``length`` bytes that begin ``back`` bytes before the end; they may overlap."""
    start = len(out) - back
    if not back or start < 0:
        raise BlockMalformed("an LZ4 match begins before the content")
    if back >= length:
        out += out[start : start + length]
    else:
        piece = out[start:]
        out += (piece * (length // back + 1))[:length]
