"""Write the table of rights in docs/security.md from the rules: `python -m tools.rights_table`.

The table is not written by hand: each field of each request is set alone, and the rules say which
right the field adds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from taskraft.v1.task_service_pb2 import ExecuteBatchRequest
from taskraft_service.access.ownership import reached_names
from taskraft_service.access.permission_rules import RULES, RequiredPermission, required_permissions
from taskraft_service.access.permissions import ALL_TUBES, ANY_TUBE, ROLES, Verb
from taskraft_service.stubs.externalscaler.external_scaler_pb2 import ScaledObjectRef

PAGE: Final = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN: Final = "<!-- Written by `python -m tools.rights_table` from the rules; do not edit. -->"
END: Final = "<!-- End of the table. -->"
SCALER: Final = "IsActive, StreamIsActive, GetMetricSpec"
"""The methods for KEDA whose request is not named after them."""
OWNED: Final = "for what others own: admin"

MessageDescriptor: TypeAlias = Any
"""The descriptor of a message; the stubs of protobuf name two types for it."""
FieldPath: TypeAlias = tuple[FieldDescriptor, ...]
"""A field, after the fields of the messages that contain it."""


class Cell(NamedTuple):
    """A field of a request, with the rights that the field adds to those of the method."""

    method: str
    path: str
    """The field; empty: the rights of the method without this field."""
    request: Message
    """A request with the field, and with the names that the method needs."""
    rights: Sequence[RequiredPermission]
    owned: Sequence[str]
    """Names whose admins may change the objects of others that the request reaches."""


def paths_of(kind: MessageDescriptor, before: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield all fields of a message type and of the messages in it, each type once on a path."""
    for field in kind.fields:
        path = (*before, field)
        inner = field.message_type
        is_map = inner is not None and inner.GetOptions().map_entry
        if inner is None or is_map or any(each.message_type is inner for each in before):
            yield path
        else:
            yield from paths_of(inner, path)


def text_of(path: FieldPath) -> str:
    """Return the name of a field as the documentation of the contract writes it."""
    return ".".join(field.name for field in path)


def set_field(request: Message, path: FieldPath) -> None:
    """Set a field; the value of a text is the name of the field, so that rights name the field."""
    message: Any = request
    for field in path[:-1]:
        inner = getattr(message, field.name)
        if field.is_repeated:
            message = inner[0] if inner else inner.add()
        else:
            message = inner
            message.SetInParent()
    field = path[-1]
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["tube"] = text_of(path)
        return
    value: Any = 1
    if field.type == FieldDescriptor.TYPE_BYTES:
        value = b"x"
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        value = text_of(path)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        value = True
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def request_with(kind: type[Message], paths: Sequence[FieldPath]) -> Message:
    """Return a request in which only some fields are set."""
    request = kind()
    for path in paths:
        try:
            set_field(request, path)
        except TypeError:  # a map whose values are no texts
            continue
    return request


def _names_in(kind: type[Message], paths: Sequence[FieldPath]) -> list[FieldPath]:
    """Return the fields whose names the method needs in each request.

    Without such a field, the request needs a right on an empty name.
    """
    named = [
        path
        for path in paths
        if text_of(path) in {name for _, name in required_permissions(request_with(kind, (path,)))}
    ]
    whole = set(required_permissions(request_with(kind, named)))
    needed = []
    for path in named:
        others = [each for each in named if each is not path]
        more = set(required_permissions(request_with(kind, others))) - whole
        if any(name == ANY_TUBE for _, name in more):
            needed.append(path)
    return needed


def cells_of(kind: type[Message]) -> Iterator[Cell]:
    """Yield the rights of a method, then one cell for each field that adds a right."""
    method = SCALER if kind is ScaledObjectRef else kind.DESCRIPTOR.name.removesuffix("Request")
    paths = list(paths_of(kind.DESCRIPTOR))
    names = _names_in(kind, paths)
    base = request_with(kind, names)
    rights, owned = set(required_permissions(base)), set(reached_names(base))
    yield Cell(method, "", base, sorted(rights, key=_order), sorted(owned))
    for path in paths:
        if path in names:
            continue
        request = request_with(kind, (*names, path))
        more = set(required_permissions(request)) - rights
        reached = set(reached_names(request)) - owned
        if more or reached:
            added = sorted(more, key=_order)
            yield Cell(method, text_of(path), request, added, sorted(reached))


def _order(right: RequiredPermission) -> tuple[str, str]:
    return right[0].value, right[1]


def cells() -> Iterator[Cell]:
    """Yield the cells of all methods, in order of their names.

    A batch is left out: each of its operations needs the rights of its own method.
    """
    for kind in sorted(RULES, key=lambda kind: kind.DESCRIPTOR.name):
        if kind is not ExecuteBatchRequest:
            yield from cells_of(kind)


def role_of(verb: Verb) -> str:
    """Return the smallest role that has a permission."""
    roles = [role for role, verbs in ROLES.items() if verb in verbs]
    return min(roles, key=lambda role: len(ROLES[role]))


def _shown(cell: Cell) -> str:
    scopes = {ALL_TUBES: "`*`", ANY_TUBE: "any tube"}
    texts = [f"{role_of(verb)} on {scopes.get(name, f'`{name}`')}" for verb, name in cell.rights]
    texts += [f"{OWNED} on `{name}`" for name in cell.owned]
    return "; ".join(texts) or "any principal"


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| method | field | role |", "| --- | --- | --- |"]
    for cell in cells():
        field = f"`{cell.path}`" if cell.path else ""
        lines.append(f"| {cell.method} | {field} | {_shown(cell)} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with the table of now.

    Raises:
        ValueError: the page has no place for the table.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no comments around the table")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
