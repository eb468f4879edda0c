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
from taskraft_service.limits import HEADERS_BYTES_MAX
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.state.queue_state import Edited

_UPDATES_KEPT: Final = 4
"""Number of decoded updates that are kept, because one command changes many tasks alike."""
_PAYLOAD: Final = task_pb2.TaskSpec.PAYLOAD_FIELD_NUMBER
_CONTENT_TYPE: Final = task_pb2.TaskSpec.CONTENT_TYPE_FIELD_NUMBER
_HEADERS: Final = task_pb2.TaskSpec.HEADERS_FIELD_NUMBER
_NAME: Final = 1
_CONTENT: Final = 2
"""Field numbers of a map entry."""


class _Header(NamedTuple):
    """A header: the size of its name and content in bytes, and its field."""

    size: int
    field: bytes


class _Update(NamedTuple):
    """A decoded TaskUpdate; a payload or media type of None stays."""

    payload: bytes | None
    content_type: bytes | None
    removed: Sequence[bytes]
    changed: Mapping[bytes, _Header]


@lru_cache(_UPDATES_KEPT)
def _decoded(changes: bytes) -> _Update:
    update = task_pb2.TaskUpdate.FromString(changes)
    return _Update(
        update.payload if update.HasField("payload") else None,
        update.content_type.encode() if update.HasField("content_type") else None,
        [name.encode() for name in update.headers_remove],
        {name.encode(): _header(name.encode(), one) for name, one in update.headers_set.items()},
    )


def edit_body(body: bytes, changes: bytes) -> Edited | Refusal:
    """Return a TaskSpec with the changes of a TaskUpdate; the ``Editor`` of the queue.

    Changes payload, media type and headers. The payload is the first field; the headers are last,
    in order of their names.
    """
    update = _decoded(changes)
    payload, content_type = update.payload or b"", update.content_type or b""
    headers: dict[bytes, _Header] = {}
    kept: list[bytes] = []
    for number, wire_type, content in wire.fields(body):
        if number == _HEADERS and isinstance(content, bytes):
            element = task_pb2.TaskSpec.HeadersEntry.FromString(content)
            name = element.key.encode()
            headers[name] = _header(name, element.value)
        elif number == _PAYLOAD and isinstance(content, bytes):
            payload = content if update.payload is None else payload
        elif number == _CONTENT_TYPE and isinstance(content, bytes):
            content_type = content if update.content_type is None else content_type
        else:
            kept.append(_field(number, wire_type, content))
    for name in update.removed:
        headers.pop(name, None)
    headers.update(update.changed)
    headers_bytes = sum([one.size for one in headers.values()])
    if headers_bytes > HEADERS_BYTES_MAX:
        return _too_large(headers_bytes)
    parts = [*_optional(_PAYLOAD, payload), *_optional(_CONTENT_TYPE, content_type), *kept]
    parts += [headers[name].field for name in sorted(headers)]
    return Edited(b"".join(parts), len(payload))


def _too_large(headers_bytes: int) -> Refusal:
    return Refusal(
        Reason.PAYLOAD_TOO_LARGE,
        f"the headers would have {headers_bytes} bytes, more than {HEADERS_BYTES_MAX}",
        {
            "field": "update.headers_set",
            "limit": str(HEADERS_BYTES_MAX),
            "actual": str(headers_bytes),
        },
    )


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


def _header(name: bytes, content: bytes) -> _Header:
    element = wire.length_delimited(_NAME, name) + wire.length_delimited(_CONTENT, content)
    return _Header(len(name) + len(content), wire.length_delimited(_HEADERS, element))
