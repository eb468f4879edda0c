"""Encode and decode records by tables of their fields.

A ``FieldTable`` states the layout of a record once: its fields in the order of their bytes. Both
directions follow from it:

    ENDING = FieldTable(
        Ending,
        Number("at_ms", "q"),
        Text("tube"),
        Texts("key"),
    )
    record = ENDING.write(ending)
    ending, end = ENDING.read(record)

A table is compiled when it is made, see ``table_source``. A change of a table changes the format of
the store: see ``persistence.meta_record.FORMAT``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from taskraft_service.queue.codecs.fields import Field
from taskraft_service.queue.codecs.table_source import NO_PARTS, Parts, TableSource

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Read(Protocol[T_co]):
    def __call__(self, record: bytes, at: int = 0, /) -> tuple[T_co, int]: ...


class FieldTable(Generic[T]):
    """The fields of a record, with the functions that encode and decode it.

    Attributes:
        write: returns the record of a value, which has the attributes that the fields name.
        read: returns the value of the record that begins at a position, and the position after it.
        source: the source of both functions.
    """

    __slots__ = ("read", "source", "write")

    def __init__(self, make: Callable[..., T], *fields: Field, parts: Parts = NO_PARTS) -> None:
        """Compile a table.

        ``make`` gets the fields that are read as keywords. ``parts``: makers of the attributes that
        dotted names refer to, by attribute. A part that may be None has a ``Present``.
        """
        source = TableSource(fields, parts)
        self.source: Final = source.text()
        names = source.names | {"_make": make}
        exec(compile(self.source, "<field table>", "exec"), names)  # noqa: S102 - no input of users
        self.write: Final[Callable[[Any], bytes]] = names["write"]
        self.read: Final[_Read[T]] = names["read"]
