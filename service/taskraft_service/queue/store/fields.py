"""Define the kinds of fields that a ``FieldTable`` consists of.

All numbers are big-endian. A ``code`` is a format character of the module ``struct``: ``B``, ``H``,
``I`` and ``Q`` are unsigned numbers of 1, 2, 4 and 8 bytes, ``b`` and ``q`` are signed, ``?`` is a
bool. A text, a byte string or a list begins with its size in 4 bytes, unless an earlier ``Size``
holds the size.

The name of a field is the attribute that is encoded, and the keyword argument that receives the
decoded value. A dotted name, for example ``failure.message``, is an attribute of a part of the
value. With ``of``, the encoder reads something else than the attribute: a path of attributes and
indices, for example ``cursor[0]``, or the result of a function of the value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, Protocol, TypeAlias

from taskraft_service.queue.values import value

SIZE: Final = Struct(">I")
Of: TypeAlias = str | Callable[[Any], object]


class RecordCodec(Protocol):
    """Functions that encode and decode a nested record; ``FieldTable`` satisfies this protocol.

    ``read`` takes the bytes and the start position of the record, and returns the value and the end
    position.
    """

    @property
    def write(self) -> Callable[[Any], bytes]:
        """Return the function that encodes a record."""

    @property
    def read(self) -> Callable[[bytes, int], tuple[Any, int]]:
        """Return the function that decodes a record."""


@value
class Number:
    """A number; ``kind`` converts a decoded number, and ``absent`` encodes None."""

    name: str
    code: str
    kind: Callable[[int], object] = int
    of: Of = ""
    absent: int | None = None


@value
class Constant:
    """A number that is the same in all records of the table, and is skipped by ``read``."""

    code: str
    number: int


class Size:
    """The number of bytes or items of a later field, which is then encoded without its size.

    With several names, all named fields have the same number of items.
    """

    __slots__ = ("code", "names")

    def __init__(self, code: str, *names: str) -> None:
        """Hold the size of the named fields."""
        self.code = code
        self.names = names


@value
class Present:
    """A flag: the part or field with this name is present.

    An absent field is encoded as 0 or empty; inside ``Optional`` it is left out.
    """

    name: str


class Flags:
    """Bits of one number, from the lowest: names of bool attributes, and ``Present``.

    A table has at most one ``Flags``.
    """

    __slots__ = ("bits", "code")

    def __init__(self, code: str, *bits: str | Present) -> None:
        """Define the meaning of each bit, from the lowest."""
        self.code = code
        self.bits = bits


@value
class Text:
    """A text in UTF-8; with ``to_end``, the rest of the record without a size."""

    name: str
    of: Of = ""
    to_end: bool = False


@value
class Blob:
    """A byte string; with ``to_end``, the rest of the record without a size."""

    name: str
    of: Of = ""
    to_end: bool = False


@value
class Nested:
    """A record of another table."""

    name: str
    table: RecordCodec
    of: Of = ""


@value
class Optional:
    """A field that takes no bytes if it is absent; ``Flags`` needs a ``Present`` for the field.

    An absent number is decoded as 0, and an absent record as None.
    """

    field: Number | Nested


def _write_blobs(blobs: Sequence[bytes]) -> bytes:
    return b"".join([part for blob in blobs for part in (SIZE.pack(len(blob)), blob)])


def _read_blobs(record: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    blobs = []
    for _ in range(count):
        start = at + SIZE.size
        at = start + SIZE.unpack_from(record, at)[0]
        blobs.append(record[start:at])
    return blobs, at


@value
class Blobs:
    """A list of byte strings, each with its size."""

    name: str
    of: Of = ""

    def write(self, blobs: Sequence[bytes]) -> bytes:
        """Return the items as bytes."""
        return _write_blobs(blobs)

    def read(self, record: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
        """Return the items that begin at ``at``, and the position after them."""
        blobs, at = _read_blobs(record, at, count)
        return tuple(blobs), at


@value
class Texts:
    """A list of texts, each with its size."""

    name: str
    of: Of = ""

    def write(self, texts: Sequence[str]) -> bytes:
        """Return the items as bytes."""
        return _write_blobs([text.encode() for text in texts])

    def read(self, record: bytes, at: int, count: int) -> tuple[tuple[str, ...], int]:
        """Return the items that begin at ``at``, and the position after them."""
        blobs, at = _read_blobs(record, at, count)
        return tuple([blob.decode() for blob in blobs]), at


@value
class Numbers:
    """A list of numbers."""

    name: str
    code: str
    of: Of = ""

    def write(self, numbers: Sequence[int]) -> bytes:
        """Return the items as bytes."""
        return struct.pack(f">{len(numbers)}{self.code}", *numbers)

    def read(self, record: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
        """Return the items that begin at ``at``, and the position after them."""
        layout = f">{count}{self.code}"
        return struct.unpack_from(layout, record, at), at + struct.calcsize(layout)


@value
class Rows:
    """A list of tuples of numbers; ``codes`` has a format character for each number."""

    name: str
    codes: str
    of: Of = ""

    def write(self, rows: Sequence[tuple[int, ...]]) -> bytes:
        """Return the items as bytes."""
        pack = Struct(">" + self.codes).pack
        return b"".join([pack(*row) for row in rows])

    def read(self, record: bytes, at: int, count: int) -> tuple[tuple[tuple[int, ...], ...], int]:
        """Return the items that begin at ``at``, and the position after them."""
        row = Struct(">" + self.codes)
        end = at + count * row.size
        return tuple(row.iter_unpack(record[at:end])), end


@value
class Items:
    """A list of records of another table."""

    name: str
    table: RecordCodec
    of: Of = ""

    def write(self, items: Sequence[object]) -> bytes:
        """Return the items as bytes."""
        return b"".join([self.table.write(item) for item in items])

    def read(self, record: bytes, at: int, count: int) -> tuple[tuple[Any, ...], int]:
        """Return the items that begin at ``at``, and the position after them."""
        items = []
        for _ in range(count):
            item, at = self.table.read(record, at)
            items.append(item)
        return tuple(items), at


Fixed: TypeAlias = Number | Constant | Size | Flags
"""Fields of fixed size; adjacent fields are packed with one call."""
List: TypeAlias = Blobs | Texts | Numbers | Rows | Items
Field: TypeAlias = Fixed | Text | Blob | List | Nested | Optional
