"""Encode the fields of fixed size of a record by a table.

A table states once, in the order on disk, which attribute each field has, how it is packed, and
what the unpacked number becomes. Adding a field to a record is one line in its table, and a new
format version in ``storage/manifest.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, Final, TypeAlias

Field: TypeAlias = tuple[str, str, Callable[[Any], object]]
"""Attribute name (dotted for nested values), ``struct`` code, conversion of the unpacked number."""


class FieldTable:
    """The fields of a record in their order, followed by ``more`` numbers without an attribute."""

    __slots__ = ("_convert", "_names", "_struct", "_values_of", "size")

    def __init__(self, fields: Sequence[Field], more: str = "") -> None:
        """Build the table; ``more`` has the ``struct`` codes of the numbers after the fields."""
        self._names: Final = tuple(name for name, _, _ in fields)
        self._convert: Final = tuple(convert for _, _, convert in fields)
        self._struct: Final = Struct(">" + "".join(code for _, code, _ in fields) + more)
        self._values_of: Final = attrgetter(*self._names)
        self.size: Final = self._struct.size

    def write(self, source: object, *more: int) -> bytes:
        """Return the fields of ``source`` and the other numbers as bytes."""
        return self._struct.pack(*self._values_of(source), *more)

    def write_values(self, values: Sequence[object], *more: int) -> bytes:
        """Return the given values, one for each field, and the other numbers as bytes."""
        return self._struct.pack(*values, *more)

    def values_of(self, source: object) -> tuple[Any, ...]:
        """Return the values of the fields of ``source``, in order."""
        values: tuple[Any, ...] = self._values_of(source)
        return values

    def read(self, record: bytes, at: int = 0) -> tuple[Mapping[str, Any], Sequence[int]]:
        """Return the fields that begin at ``at``, by name, and the other numbers."""
        numbers = self._struct.unpack_from(record, at)
        fields = {
            name: convert(number)
            for name, convert, number in zip(self._names, self._convert, numbers, strict=False)
        }
        return fields, numbers[len(self._names) :]
