"""Encode and decode records as described by tables of their fields.

A ``FieldTable`` lists the fields of a record in the order of their bytes. The encoder and the
decoder are generated from the list:

    ENDING = FieldTable(
        Ending,
        Number("at_ms", "q"),
        Text("tube"),
        Texts("key"),
    )
    record = ENDING.write(ending)
    ending, end = ENDING.read(record)

The constructor compiles both functions (see ``table_source``). A change of a table changes the
format of the store (see ``persistence.state_records.FORMAT``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from taskraft_service.queue.store.fields import Field
from taskraft_service.queue.store.table_source import NO_PARTS, Parts, TableSource

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Read(Protocol[T_co]):
    def __call__(self, record: bytes, at: int = 0, /) -> tuple[T_co, int]: ...


class FieldTable(Generic[T]):
    """The fields of a record, with the functions that encode and decode it.

    Attributes:
        write: encodes a value into a record; reads the attributes that the fields name.
        read: decodes the record that begins at a position; returns the value and the end position.
        source: the Python source of both functions.
    """

    __slots__ = ("read", "source", "write")

    def __init__(self, make: Callable[..., T], *fields: Field, parts: Parts = NO_PARTS) -> None:
        """Compile a table.

        ``make`` is called with the decoded fields as keyword arguments. ``parts`` maps the first
        attribute of each dotted name to a function that makes the value of this attribute. A part
        that may be None needs a ``Present`` flag.
        """
        source = TableSource(fields, parts)
        self.source: Final = source.text()
        names = source.names | {"_make": make}
        exec(compile(self.source, "<field table>", "exec"), names)  # noqa: S102 - no input of users
        self.write: Final[Callable[[Any], bytes]] = names["write"]
        self.read: Final[_Read[T]] = names["read"]
