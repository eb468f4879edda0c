"""Change the TaskSpec of a task field by field in protobuf's wire format.

Protobuf libraries do not promise a field order across versions, but nodes of different versions
must write the same bytes. Unchanged fields are therefore copied as received.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from taskraft.v1 import task_pb2
from taskraft_service import wire
from taskraft_service.limits import HEADERS_BYTES_MAX, HEADERS_MAX
from taskraft_service.queue.entities.refusal import Reason, Refusal, invalid
from taskraft_service.queue.state.content_work import Edited

_UPDATES_KEPT: Final = 4
"""Number of decoded updates that are kept, because one command changes many tasks alike."""
_PAYLOAD: Final = task_pb2.TaskSpec.PAYLOAD_FIELD_NUMBER
_CONTENT_TYPE: Final = task_pb2.TaskSpec.CONTENT_TYPE_FIELD_NUMBER
_HEADERS: Final = task_pb2.TaskSpec.HEADERS_FIELD_NUMBER
_NAME: Final = 1
_CONTENT: Final = 2
"""Field numbers of a map entry."""
_NAME_TAG: Final = _NAME << 3 | wire.LENGTH
_CONTENT_TAG: Final = _CONTENT << 3 | wire.LENGTH
_FRAME_BYTES: Final = 4
"""Minimum size of a map entry without its name and content."""
_HEADER_WORK_BYTES: Final = 1_024
"""Size of a payload that takes as long to change as one header, which takes nearly 1 us."""


class _Update(NamedTuple):
    """A decoded TaskUpdate; a payload or media type of None stays."""

    payload: bytes | None
    content_type: bytes | None
    removed: Sequence[bytes]
    changed: Mapping[bytes, bytes]
    """The new map entries of headers, by their names."""


@lru_cache(_UPDATES_KEPT)
def _decoded(changes: bytes) -> _Update:
    update = task_pb2.TaskUpdate.FromString(changes)
    return _Update(
        update.payload if update.HasField("payload") else None,
        update.content_type.encode() if update.HasField("content_type") else None,
        [name.encode() for name in update.headers_remove],
        {name.encode(): _entry(name.encode(), one) for name, one in update.headers_set.items()},
    )


def edit_body(body: bytes, changes: bytes) -> Edited | Refusal:
    """Return a TaskSpec with the changes of a TaskUpdate; the ``Editor`` of the queue.

    Changes payload, media type and headers. The payload is the first field, the headers are last.
    Changed headers are in order of their names.
    """
    update = _decoded(changes)
    entries, others = wire.split(body, 0, len(body), _HEADERS)
    if update.removed or update.changed:
        headers = {_name(entry): entry for entry in entries}
        for name in update.removed:
            headers.pop(name, None)
        headers.update(update.changed)
        entries = [headers[name] for name in sorted(headers)]
        refusal = _refusal(entries) if update.changed else None
        if refusal is not None:
            return refusal
    payload, content_type = update.payload or b"", update.content_type or b""
    kept: list[bytes] = []
    for number, wire_type, content in wire.fields(others):
        if number == _PAYLOAD and isinstance(content, bytes):
            payload = content if update.payload is None else payload
        elif number == _CONTENT_TYPE and isinstance(content, bytes):
            content_type = content if update.content_type is None else content_type
        else:
            kept.append(_field(number, wire_type, content))
    parts = [*_optional(_PAYLOAD, payload), *_optional(_CONTENT_TYPE, content_type), *kept]
    parts.append(wire.repeated(_HEADERS, entries))
    work_bytes = len(payload) + len(entries) * _HEADER_WORK_BYTES
    return Edited(b"".join(parts), len(payload), work_bytes)


def _refusal(entries: Sequence[bytes]) -> Refusal | None:
    """Return why a task cannot have the headers of these map entries, or None."""
    if len(entries) > HEADERS_MAX:
        text = f"a task would have {len(entries)} headers, more than {HEADERS_MAX}"
        return invalid("update.headers_set", text, {"limit": str(HEADERS_MAX)})
    if sum(map(len, entries)) - len(entries) * _FRAME_BYTES <= HEADERS_BYTES_MAX:
        return None
    headers = map(task_pb2.TaskSpec.HeadersEntry.FromString, entries)
    actual = sum([len(header.key.encode()) + len(header.value) for header in headers])
    if actual <= HEADERS_BYTES_MAX:
        return None
    return Refusal(
        Reason.PAYLOAD_TOO_LARGE,
        f"the headers would have {actual} bytes, more than {HEADERS_BYTES_MAX}",
        {"field": "update.headers_set", "limit": str(HEADERS_BYTES_MAX), "actual": str(actual)},
    )


def _name(entry: bytes) -> bytes:
    """Return the name of the header of a map entry, encoded.

    Most entries have a name of less than 128 bytes and a content. The parser reads the others.
    """
    entry_bytes = len(entry)
    if entry_bytes >= _FRAME_BYTES and entry[0] == _NAME_TAG and (size := entry[1]) < 128:
        end = 2 + size
        if end + 1 < entry_bytes and entry[end] == _CONTENT_TAG:
            content_bytes, begin = entry[end + 1], end + 2
            if content_bytes > 127:
                content_bytes, begin = wire.read_varint(entry, end + 1)
            if begin + content_bytes == entry_bytes:
                return entry[2:end]
    return task_pb2.TaskSpec.HeadersEntry.FromString(entry).key.encode()


def _entry(name: bytes, content: bytes) -> bytes:
    return wire.length_delimited(_NAME, name) + wire.length_delimited(_CONTENT, content)


def _field(number: int, wire_type: int, content: bytes | int) -> bytes:
    """Return a field as received."""
    if isinstance(content, int):
        return wire.tag(number, wire_type) + wire.varint(content)
    if wire_type == wire.LENGTH:
        return wire.length_delimited(number, content)
    return wire.tag(number, wire_type) + content


def _optional(number: int, content: bytes) -> Iterator[bytes]:
    """Yield a field unless it has the default value, which is not written."""
    if content:
        yield wire.length_delimited(number, content)
