"""Convert messages of the contract to frozen dataclasses, field by field.

The fields of a dataclass have the names of the message's fields; the field `message` holds the
whole message. A field with a message, a list or an enumeration needs a converter in its metadata. A
field that is absent from the message gets the default of the dataclass. All absent messages of one
kind are the same object, because a list of 10 000 tubes has 20 000 absent messages of 40 counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from taskraft._message_fields import Enumeration

T = TypeVar("T")
Converter = Callable[[Any], object]
Metadata = Mapping[str, Any]

_CONVERTER: Final = "converter"
_NESTED: Final = "nested"
_MESSAGE: Final = "message"


class _Field(NamedTuple):
    name: str
    convert: Converter
    may_be_absent: bool
    absent: object
    """Value that all absent messages of the field share; None: each one is converted."""


_KNOWN: Final[dict[type[Any], tuple[_Field, ...]]] = {}
"""Fields by dataclass, because a list of tubes has many objects of few classes."""


def converted(convert: Converter) -> Metadata:
    """Return the metadata of a field that converts the field of the message."""
    return {_CONVERTER: convert}


def nested(kind: type[Any]) -> Metadata:
    """Return the metadata of a field that holds another dataclass."""
    return {_CONVERTER: partial(value_of, kind), _NESTED: kind}


def tuple_of(kind: type[Any]) -> Metadata:
    """Return the metadata of a field that holds a tuple of another dataclass."""

    def convert(messages: Iterable[Message]) -> tuple[object, ...]:
        return tuple(value_of(kind, message) for message in messages)

    return converted(convert)


def choice_name(enumeration: Enumeration) -> Metadata:
    """Return the metadata of a field that holds the lower-case name of an enumeration's value.

    A value that this version of the client does not know is shown as its number.
    """
    names = {
        number: "" if name.endswith("UNSPECIFIED") else name.lower()
        for name, number in enumeration.items()
    }
    return converted(lambda number: names.get(number, str(number)))


def value_of(kind: type[T], message: Message) -> T:
    """Return a message as an object of the dataclass `kind`."""
    values = {
        field.name: field.convert(getattr(message, field.name))
        if field.absent is None or message.HasField(field.name)
        else field.absent
        for field in _fields_of(kind, message)
        if not field.may_be_absent or message.HasField(field.name)
    }
    if _MESSAGE in kind.__annotations__:
        values[_MESSAGE] = message
    return kind(**values)


def _fields_of(kind: type[Any], message: Message) -> tuple[_Field, ...]:
    known = _KNOWN.get(kind)
    if known is None:
        known = _KNOWN[kind] = _read_fields(kind, message)
    return known


def _read_fields(kind: type[Any], message: Message) -> tuple[_Field, ...]:
    known = message.DESCRIPTOR.fields_by_name
    return tuple(
        _Field(
            field.name,
            field.metadata.get(_CONVERTER, _unchanged),
            known[field.name].has_presence and field.default is not MISSING,
            _absent(field.metadata.get(_NESTED), message, field.name),
        )
        for field in fields(kind)
        if field.name != _MESSAGE
    )


def _absent(kind: type[Any] | None, message: Message, name: str) -> object:
    """Return the value that all absent messages of a field share.

    None: absent messages share no value, because the value holds its message.
    """
    if kind is None or _MESSAGE in kind.__annotations__:
        return None
    return value_of(kind, type(getattr(message, name))())


def _unchanged(value: object) -> object:
    return value
