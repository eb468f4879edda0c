"""Describe the contract in Markdown: services, messages and enums with the comments of `proto/`.

`make docs` inserts the text into docs/reference/contract.md.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = "taskraft.v1"

# Numbers of fields in descriptor.proto; a path of them finds the comment of a declaration.
_FILE_MESSAGE, _FILE_ENUM, _FILE_SERVICE = 4, 5, 6
_MESSAGE_FIELD, _MESSAGE_NESTED, _MESSAGE_ENUM = 2, 3, 4
_ENUM_VALUE = 2
_SERVICE_METHOD = 2


class Comments(NamedTuple):
    """The comments of one file, by the path of the declaration below the comment."""

    of: dict[tuple[int, ...], str]

    def text(self, *path: int) -> str:
        """Return a comment as one paragraph for each paragraph of the source."""
        paragraphs = self.of.get(path, "").strip().split("\n\n")
        return "\n\n".join(_escaped(" ".join(each.split())) for each in paragraphs)

    def cell(self, *path: int) -> str:
        """Return a comment as the content of a table cell."""
        return self.text(*path).replace("\n\n", " ").replace("|", "\\|")


def files() -> list[FileDescriptorProto]:
    """Compile the contract, and return its files in the order of their names."""
    buf = Path(sys.executable).parent / "buf"
    command = [str(buf), "build", "--as-file-descriptor-set", "--output", "-"]
    image = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    found = FileDescriptorSet.FromString(image).file
    return sorted((each for each in found if each.package == PACKAGE), key=lambda file: file.name)


def text() -> str:
    """Return the description of all services, messages and enums."""
    contract = files()
    parts = ["## Services\n"]
    for file in contract:
        comments = _comments(file)
        for number, service in enumerate(file.service):
            parts += _service(service, comments, (_FILE_SERVICE, number))
    parts.append("## Messages and enums\n")
    for file in contract:
        comments = _comments(file)
        for number, message in enumerate(file.message_type):
            if not message.options.map_entry:
                parts += _message(message, comments, (_FILE_MESSAGE, number), "")
        for number, enum in enumerate(file.enum_type):
            parts += _enum(enum, comments, (_FILE_ENUM, number), "")
    return "\n".join(parts)


def _service(
    service: ServiceDescriptorProto, comments: Comments, path: tuple[int, ...]
) -> Iterator[str]:
    yield f"### {service.name}\n"
    yield comments.text(*path) + "\n"
    for number, method in enumerate(service.method):
        yield f"#### {method.name}\n"
        yield f"{_request(method)} → {_answer(method)}\n"
        yield comments.text(*path, _SERVICE_METHOD, number) + "\n"


def _request(method: MethodDescriptorProto) -> str:
    stream = "stream of " if method.client_streaming else ""
    return stream + _link(method.input_type)


def _answer(method: MethodDescriptorProto) -> str:
    stream = "stream of " if method.server_streaming else ""
    return stream + _link(method.output_type)


def _message(
    message: DescriptorProto, comments: Comments, path: tuple[int, ...], outer: str
) -> Iterator[str]:
    """Yield the lines of a message and of the types inside it."""
    name = outer + message.name
    yield f"### {name}\n"
    yield comments.text(*path) + "\n"
    if message.field:
        maps = {
            f".{PACKAGE}.{name}.{nested.name}": nested
            for nested in message.nested_type
            if nested.options.map_entry
        }
        yield "| field | number | type | meaning |"
        yield "| --- | --- | --- | --- |"
        for number, field in enumerate(message.field):
            meaning = comments.cell(*path, _MESSAGE_FIELD, number)
            choice = _choice(message, field)
            kind = _type(field, maps)
            yield f"| `{field.name}` | {field.number} | {kind} | {choice}{meaning} |"
        yield ""
    for number, enum in enumerate(message.enum_type):
        yield from _enum(enum, comments, (*path, _MESSAGE_ENUM, number), f"{name}.")
    for number, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message(nested, comments, (*path, _MESSAGE_NESTED, number), f"{name}.")


def _enum(
    enum: EnumDescriptorProto, comments: Comments, path: tuple[int, ...], outer: str
) -> Iterator[str]:
    yield f"### {outer}{enum.name}\n"
    yield comments.text(*path) + "\n"
    yield "| value | number | meaning |"
    yield "| --- | --- | --- |"
    for number, value in enumerate(enum.value):
        meaning = comments.cell(*path, _ENUM_VALUE, number)
        yield f"| `{value.name}` | {value.number} | {meaning} |"
    yield ""


def _choice(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Return the prefix of a field that is one of a ``oneof``."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return f"One of `{message.oneof_decl[field.oneof_index].name}`. "


def _type(field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
    if entry := maps.get(field.type_name):
        key, value = entry.field
        return f"map of {_type(key, {})} to {_type(value, {})}"
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    shown = _link(field.type_name) if field.type_name else kind
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {shown}"
    return f"optional {shown}" if field.proto3_optional else shown


def _link(full_name: str) -> str:
    """Return a type as a link to its heading; types of other packages have no heading here."""
    name = full_name.removeprefix(".")
    own = name.removeprefix(f"{PACKAGE}.")
    return f"`{name}`" if own == name else f"[{own}](#{anchor(own)})"


def anchor(heading: str) -> str:
    """Return the anchor of the heading of a type."""
    return heading.lower().replace(".", "")


def _comments(file: FileDescriptorProto) -> Comments:
    locations = file.source_code_info.location
    return Comments({tuple(each.path): each.leading_comments for each in locations})


def _escaped(text: str) -> str:
    """Escape characters of a comment that Markdown would read as markup."""
    return "".join(f"\\{letter}" if letter in "*_<>[]`" else letter for letter in text)
