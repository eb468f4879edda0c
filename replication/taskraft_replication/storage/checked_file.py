"""Write and read small files that are replaced as a whole: atomic, durable, with a checksum.

A file has one header line and one JSON object, so that an operator can read it::

    taskraft hard_state 1 9ae0daaf
    {"commit": 17, "term": 3, "vote": 2}
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

import google_crc32c

from taskraft_replication.errors import FormatUnknown, LogDamaged
from taskraft_replication.storage.filesystem import FileSystem
from taskraft_replication.versions import DirectoryVersion

FORMAT: Final = DirectoryVersion.V3
"""Format version of the files that this release writes; see ``DirectoryVersion``."""
_READABLE: Final = frozenset(str(version.value) for version in DirectoryVersion)

TEMPORARY_SUFFIX: Final = ".new"

JsonValue = int | str | bool | list["JsonValue"] | dict[str, "JsonValue"]

_Value = TypeVar("_Value", int, str)


def write_checked(fs: FileSystem, name: str, content: dict[str, JsonValue]) -> None:
    """Replace the content of the file; the content and the file name are durable on return.

    After a crash, the file has the old or the new content: write a temporary file, fsync it, rename
    it, fsync the directory.
    """
    directory, _, kind = name.rpartition("/")
    body = json.dumps(content, sort_keys=True).encode() + b"\n"
    header = f"taskraft {kind} {FORMAT.value} {google_crc32c.value(body):08x}\n".encode()
    file = fs.create(name + TEMPORARY_SUFFIX)
    try:
        file.write(0, header + body)
        file.sync()
    finally:
        file.close()
    fs.rename(name + TEMPORARY_SUFFIX, name)
    fs.sync_directory(directory)


def read_checked(fs: FileSystem, name: str) -> dict[str, JsonValue]:
    """Return the content of a file.

    Raises:
        LogDamaged: the file is missing or fails its checksum. A missing file is not treated as an
            empty file, because the member would then forget its vote and could vote twice in a
            term.
        FormatUnknown: another version wrote the file.
    """
    try:
        raw = fs.read(name)
    except FileNotFoundError as error:
        raise LogDamaged(f"{name} is missing") from error
    return parse_checked(name, raw)


def parse_checked(name: str, raw: bytes) -> dict[str, JsonValue]:
    """Return the content of a file from its bytes; raises the errors of ``read_checked``."""
    kind = name.rpartition("/")[2]
    header, _, body = raw.partition(b"\n")
    words = header.decode(errors="replace").split(" ")
    if len(words) != 4 or words[:2] != ["taskraft", kind]:
        raise LogDamaged(f"{name} has no readable header")
    if words[3] != f"{google_crc32c.value(body):08x}":
        raise LogDamaged(f"{name} fails its checksum")
    if words[2] not in _READABLE:
        raise FormatUnknown(
            f"{name} has format {words[2]}; this release reads {_formats()}; "
            f"run the release that wrote it, see docs/upgrading.md"
        )
    try:
        content = json.loads(body)
    except ValueError as error:
        raise LogDamaged(f"{name} is not JSON: {error}") from error
    return object_of(content)


def _formats() -> str:
    return f"format {', '.join(sorted(_READABLE, key=int))}"


def number_of(content: dict[str, JsonValue], field: str) -> int:
    """Return the number in ``field``.

    Raises:
        LogDamaged: the field is missing or has another type.
    """
    return _value_of(content, field, int, "number")


def text_of(content: dict[str, JsonValue], field: str) -> str:
    """Return the text in ``field``.

    Raises:
        LogDamaged: the field is missing or has another type.
    """
    return _value_of(content, field, str, "text")


def list_of(content: dict[str, JsonValue], field: str) -> list[JsonValue]:
    """Return the list in ``field``.

    Raises:
        LogDamaged: the field is missing or has another type.
    """
    found = content.get(field)
    if not isinstance(found, list):
        raise LogDamaged(f"field {field} is missing or is not a list")
    return found


def object_of(content: JsonValue) -> dict[str, JsonValue]:
    """Return a JSON value as an object.

    Raises:
        LogDamaged: the value has another type.
    """
    if not isinstance(content, dict):
        raise LogDamaged(f"a {type(content).__name__} is stored in place of an object")
    return content


def _value_of(
    content: dict[str, JsonValue], field: str, kind: type[_Value], kind_name: str
) -> _Value:
    found = content.get(field)
    if not isinstance(found, kind):
        raise LogDamaged(f"field {field} is missing or is not a {kind_name}")
    return found
