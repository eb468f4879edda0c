"""The fields that the objects in the output of a command have, to check a template before a call.

A shape is the name of a message of the API such as "task_pb2.Task", or a mapping from the names of
fields to the shapes of their values (None: not checked), or several shapes that are merged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor

Shape = str | Mapping[str, "Shape | None"] | tuple["Shape", ...]
TEMPLATE: Final = "template="
"""Prefix of the output format with a template."""
FIELD: Final = re.compile(r"\{([^{}]*)\}")
"""A field in a template: a path of names in braces."""


def fields(*names: str) -> Shape:
    """Return the shape of objects with fields of these names, whose values are not checked."""
    return dict.fromkeys(names)


def unknown_field(output: str, shape: Shape) -> str | None:
    """Return the first path of a template that names no field of the shape; None if all do."""
    if not output.startswith(TEMPLATE):
        return None
    paths = FIELD.findall(output.removeprefix(TEMPLATE))
    return next((path for path in paths if not _has(shape, path.split("."))), None)


def names_of(shape: Shape) -> frozenset[str]:
    """Return the names of the fields of an object, without the fields of its parts."""
    return frozenset(_names(shape))


def _names(shape: Shape) -> Iterator[str]:
    if isinstance(shape, tuple):
        for part in shape:
            yield from _names(part)
    else:
        yield from shape if isinstance(shape, Mapping) else _message(shape).fields_by_name


def _has(shape: Shape | None, path: list[str]) -> bool:
    """Return whether a path names a field, or a part of a field that is not checked."""
    if shape is None or not path:
        return True
    if isinstance(shape, tuple):
        return any(_has(part, path) for part in shape)
    if isinstance(shape, Mapping):
        return path[0] in shape and _has(shape[path[0]], path[1:])
    return _message_has(_message(shape), path)


def _message(name: str) -> Descriptor:
    """Return the descriptor of a message, for example of "task_pb2.Task"."""
    module, _, message = name.partition(".")
    found: Descriptor = getattr(import_module(f"taskraft.v1.{module}"), message).DESCRIPTOR
    return found


def _message_has(message: Descriptor, path: list[str]) -> bool:
    """Return whether a path names a field of a message; a number chooses an element of a list."""
    field = message.fields_by_name.get(path[0])
    if field is None:
        return False
    rest, kind = path[1:], field.message_type
    if rest and kind is not None and kind.GetOptions().map_entry:
        rest, kind = rest[1:], kind.fields_by_name["value"].message_type
    elif rest and field.is_repeated:
        if not rest[0].isdecimal():
            return False
        rest = rest[1:]
    return not rest or (kind is not None and _message_has(kind, rest))
