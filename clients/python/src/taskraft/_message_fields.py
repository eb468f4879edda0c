"""Set fields of the contract from arguments; a refusal names the argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from google.protobuf.descriptor import FieldDescriptor

from taskraft._arguments import choice, wrong_type, wrong_value

if TYPE_CHECKING:
    from google.protobuf.message import Message

_BITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
"""The whole numbers that a field of the contract can hold."""
_EXPECTED: Final = {
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_STRING: "a text",
}


class Enumeration(Protocol):
    """An enumeration of the contract."""

    def items(self) -> Iterable[tuple[str, int]]:
        """Return names and numbers."""
        ...


def choices_of(enumeration: Enumeration) -> dict[str, int]:
    """Return the values of an enumeration by their names, written small."""
    return {
        name.lower(): number
        for name, number in enumeration.items()
        if not name.endswith("UNSPECIFIED")
    }


def set_field(message: Message, field: str, value: object, name: str = "") -> None:
    """Set a field of the contract; `name` is that of the argument, if it is another.

    Raises:
        TypeError: The field cannot hold a value of this type.
        ValueError: It cannot hold this value.
    """
    try:
        setattr(message, field, value)
    except (TypeError, ValueError) as error:
        kind = message.DESCRIPTOR.fields_by_name[field].cpp_type
        expected = _EXPECTED.get(kind, "")
        if kind in _BITS:
            least, most = _BITS[kind]
            expected = f"a whole number from {least} to {most}"
        refuse = wrong_type if isinstance(error, TypeError) else wrong_value
        raise refuse(name or field, expected, value) from None


def set_fields(message: Message, fields: Iterable[str], given: Mapping[str, object]) -> None:
    """Set the fields that are given, each by the argument of its name."""
    for field in fields:
        if field in given:
            set_field(message, field, given[field])


def set_choices(
    message: Message,
    choices: Iterable[tuple[str, Mapping[str, int]]],
    given: Mapping[str, object],
) -> None:
    """Set the fields of choices that are given, each by the argument of its name."""
    for field, numbers in choices:
        if field in given:
            setattr(message, field, choice(field, given[field], numbers))
