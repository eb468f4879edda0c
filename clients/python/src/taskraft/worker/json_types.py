"""Convert values of the standard library's types to JSON values and back, by annotation.

A conversion is strict in both directions: a text never becomes a number, and `put` refuses a value
that is not of the annotated type. cattrs converts texts to numbers and does not check the values
that it unstructures; strict hooks for all these types would be as long as this module.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import types
import typing
import uuid
from collections import abc
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable


Annotation: TypeAlias = Any
"""A type as a signature states it: a class, a union, a generic type or a TypedDict."""
Value: TypeAlias = Any
"""A value of a type that an `Annotation` states; type checkers do not know it."""


class Converter(NamedTuple):
    """Both directions for one type; each raises TypeError or ValueError."""

    to_json: Callable[[Value], Value]
    from_json: Callable[[Value], Value]


_converters: dict[Annotation, Converter] = {}


def converter_of(kind: Annotation) -> Converter:
    """Return the converter of a type; it is compiled on first use.

    Raises:
        TypeError: JSON cannot represent the type.
    """
    found = _converters.get(kind)
    if found is None:
        found = _converters[kind] = _compile(kind)
    return found


def _compile(kind: Annotation) -> Converter:
    plain = _plain(kind)
    if plain is not None:
        return plain
    origin: Annotation = get_origin(kind)
    args = get_args(kind)
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return converter_of(args[0])
    if origin in (typing.Union, types.UnionType):
        return _union([converter_of(one) for one in args], kind)
    if origin is typing.Literal:
        return _literal(args)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return Converter(lambda value: _checked(value, kind).value, kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind)
    if typing.is_typeddict(kind):
        return _typed_dict(kind)
    return _container(origin or kind, args, kind)


def _plain(kind: Annotation) -> Converter | None:
    """Return the converter of a type without parts, or None."""
    if kind in (Any, object):
        return Converter(_unchanged, _unchanged)
    if kind is float:
        return Converter(_number, _number)
    if kind in (None, type(None), bool, int, str):
        return _instance(kind or type(None))
    return _text(kind, *_TEXTS[kind]) if kind in _TEXTS else None


def _unchanged(value: Value) -> Value:
    return value


def _checked(value: Value, kind: type) -> Value:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"must be {kind.__name__}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _instance(kind: type) -> Converter:
    def convert(value: Value) -> Value:
        return _checked(value, kind)

    return Converter(convert, convert)


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"must be float, not {_shown(value)}")
    return value


def _text(kind: type, to: Callable[[Value], str], back: Callable[[str], Value]) -> Converter:
    return Converter(
        lambda value: to(_checked(value, kind)), lambda text: back(_checked(text, str))
    )


def _seconds(text: str) -> dt.timedelta:
    return dt.timedelta(seconds=float(text))


def _decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation as error:
        raise ValueError(f"must be a decimal number, not {_shown(text)}") from error


_TEXTS: Final[dict[type, tuple[Callable[[Value], str], Callable[[str], Value]]]] = {
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
    dt.datetime: (dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (lambda value: str(value.total_seconds()), _seconds),
    uuid.UUID: (str, uuid.UUID),
    decimal.Decimal: (str, _decimal),
}
"""Types that are JSON strings: to text and back."""


def _union(members: list[Converter], kind: object) -> Converter:
    """Return the converter of a union: the first member that accepts a value converts it."""

    def first(value: Value, direction: int) -> Value:
        for member in members:
            try:
                return member[direction](value)
            except (TypeError, ValueError):
                continue
        raise TypeError(f"must be {kind}, not {_shown(value)}")

    return Converter(lambda value: first(value, 0), lambda value: first(value, 1))


def _literal(allowed: tuple[Value, ...]) -> Converter:
    def convert(value: Value) -> Value:
        for one in allowed:
            if type(one) is type(value) and one == value:
                return value
        raise ValueError(f"must be one of {', '.join(map(repr, allowed))}, not {_shown(value)}")

    return Converter(convert, convert)


def _convert(name: str, convert: Callable[[Value], Value], value: Value) -> Value:
    """Convert a part of a value; a failure names the part."""
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _object(value: Value, required: frozenset[str], fields: abc.Collection[str]) -> Value:
    """Return a JSON object that has all required members.

    Raises:
        TypeError: the value is no object.
        ValueError: a member is missing.
    """
    if not isinstance(value, dict):
        raise TypeError(f"must be an object, not {_shown(value)}")
    missing = [name for name in fields if name in required and name not in value]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    return value


def _dataclass(kind: type) -> Converter:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [one for one in dataclasses.fields(kind) if one.init]
    members = {one.name: converter_of(hints[one.name]) for one in fields}
    required = frozenset(
        one.name
        for one in fields
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    )

    def to(value: Value) -> Value:
        _checked(value, kind)
        return {
            name: _convert(name, member.to_json, getattr(value, name))
            for name, member in members.items()
        }

    def back(value: Value) -> Value:
        found = _object(value, required, members)
        return kind(
            **{
                name: _convert(name, member.from_json, found[name])
                for name, member in members.items()
                if name in found
            }
        )

    return Converter(to, back)


def _typed_dict(kind: Annotation) -> Converter:
    hints = typing.get_type_hints(kind, include_extras=True)
    members = {name: converter_of(hint) for name, hint in hints.items()}
    required: frozenset[str] = kind.__required_keys__

    def converted(value: Value, direction: int) -> Value:
        found = _object(value, required, members)
        return {
            name: _convert(name, member[direction], found[name])
            for name, member in members.items()
            if name in found
        }

    return Converter(lambda value: converted(value, 0), lambda value: converted(value, 1))


_LISTS: Final = {list: list, set: set, frozenset: frozenset, abc.Sequence: list}


def _container(origin: Annotation, args: tuple[Annotation, ...], kind: Annotation) -> Converter:
    if origin is tuple and args and args[-1] is not Ellipsis:
        return _pair([converter_of(one) for one in args])
    if origin in _LISTS or origin is tuple:
        item = converter_of(args[0]) if args else converter_of(object)
        build = _LISTS.get(origin, tuple)
        return Converter(
            lambda value: [item.to_json(one) for one in _items(value, origin)],
            lambda value: build(item.from_json(one) for one in _checked(value, list)),
        )
    if origin in (dict, abc.Mapping):
        if args and args[0] is not str:
            raise TypeError(f"JSON has no {kind}: the keys of an object are strings")
        member = converter_of(args[1]) if args else converter_of(object)
        return Converter(
            lambda value: {
                _checked(name, str): _convert(str(name), member.to_json, one)
                for name, one in _checked(value, abc.Mapping).items()
            },
            lambda value: {
                name: _convert(name, member.from_json, one)
                for name, one in _checked(value, dict).items()
            },
        )
    raise TypeError(f"JSON cannot represent {kind!r}; choose another codec")


def _items(value: Value, origin: type) -> Value:
    if isinstance(value, str | bytes):
        raise TypeError(f"must be {origin.__name__}, not {_shown(value)}")
    return _checked(value, origin)


def _pair(members: list[Converter]) -> Converter:
    def converted(value: Value, direction: int) -> list[Value]:
        parts = _checked(value, list if direction else tuple)
        if len(parts) != len(members):
            raise ValueError(f"must have {len(members)} items, not {len(parts)}")
        return [member[direction](one) for member, one in zip(members, parts, strict=True)]

    return Converter(lambda value: converted(value, 0), lambda value: tuple(converted(value, 1)))
