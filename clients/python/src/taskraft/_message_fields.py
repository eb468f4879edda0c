"""Set protobuf fields from arguments; errors name the argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.descriptor import FieldDescriptor

from taskraft._arguments import ENCODABLE, choice, wrong_type, wrong_value
from taskraft._durations import Duration, milliseconds
from taskraft.v1 import task_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

_BITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
"""Range of the integer types."""
_EXPECTED: Final = {
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_STRING: "a string",
}


class Enumeration(Protocol):
    """A generated protobuf enumeration."""

    def items(self) -> Iterable[tuple[str, int]]:
        """Return the names of the values with their numbers."""
        ...


def choices_of(enumeration: Enumeration) -> dict[str, int]:
    """Return the values of an enumeration by lower-case name, without the unspecified value."""
    return {
        name.lower(): number
        for name, number in enumeration.items()
        if not name.endswith("UNSPECIFIED")
    }


def set_field(message: Message, field: str, value: object, name: str = "") -> None:
    """Set a field; `name` is the name of the argument, default the field's name.

    Raises:
        TypeError: the value has a wrong type for the field.
        ValueError: the value is out of range for the field.
    """
    try:
        setattr(message, field, value)
    except (TypeError, ValueError) as error:
        kind = message.DESCRIPTOR.fields_by_name[field].cpp_type
        expected = _EXPECTED.get(kind, "")
        if kind in _BITS:
            least, most = _BITS[kind]
            expected = f"a whole number from {least} to {most}"
        elif isinstance(value, str) and isinstance(error, ValueError):
            expected = ENCODABLE
        refuse = wrong_type if isinstance(error, TypeError) else wrong_value
        raise refuse(name or field, expected, value) from None


def set_fields(message: Message, fields: Iterable[str], given: Mapping[str, object]) -> None:
    """Set the fields that are given, each from the argument with its name."""
    for field in fields:
        if field in given:
            set_field(message, field, given[field])


def set_choices(
    message: Message,
    choices: Iterable[tuple[str, Mapping[str, int]]],
    given: Mapping[str, object],
) -> None:
    """Set the enumeration fields that are given, each from the argument with its name."""
    for field, numbers in choices:
        if field in given:
            setattr(message, field, choice(field, given[field], numbers))


def consistency_of(staleness: Duration | None) -> task_pb2.Consistency:
    """Return the freshness that a read requires, as a message; None: the read is linearizable."""
    if staleness is None:
        return task_pb2.Consistency()
    return task_pb2.Consistency(
        level=task_pb2.Consistency.LOCAL, staleness_ms_max=milliseconds(staleness, "staleness")
    )
