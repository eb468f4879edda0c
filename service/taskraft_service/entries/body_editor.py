"""Change the TaskSpec of a task field by field in protobuf's wire format.

Protobuf libraries do not promise a field order across versions, but nodes of different versions
must write the same bytes. Unchanged fields are therefore copied as received.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft.v1 import task_pb2
from taskraft_service import wire
from taskraft_service.limits import HEADERS_BYTES_MAX
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.state.queue_state import Edited

_PAYLOAD: Final = task_pb2.TaskSpec.PAYLOAD_FIELD_NUMBER
_CONTENT_TYPE: Final = task_pb2.TaskSpec.CONTENT_TYPE_FIELD_NUMBER
_HEADERS: Final = task_pb2.TaskSpec.HEADERS_FIELD_NUMBER
_NAME: Final = 1
_CONTENT: Final = 2
"""Field numbers of a map entry."""


def edit_body(body: bytes, changes: bytes) -> Edited | Refusal:
    """Return a TaskSpec with the changes of a TaskUpdate; the ``Editor`` of the queue.

    Changes payload, media type and headers. The payload is the first field; the headers are last,
    in order of their names.
    """
    update = task_pb2.TaskUpdate.FromString(changes)
    payload = update.payload if update.HasField("payload") else b""
    content_type = update.content_type.encode() if update.HasField("content_type") else b""
    headers: dict[bytes, bytes] = {}
    kept: list[bytes] = []
    for number, wire_type, content in wire.fields(body):
        if number == _HEADERS and isinstance(content, bytes):
            name, value = _header(content)
            headers[name] = value
        elif number == _PAYLOAD and isinstance(content, bytes):
            payload = payload if update.HasField("payload") else content
        elif number == _CONTENT_TYPE and isinstance(content, bytes):
            content_type = content_type if update.HasField("content_type") else content
        else:
            kept.append(_field(number, wire_type, content))
    for removed in update.headers_remove:
        headers.pop(removed.encode(), None)
    for changed, value in update.headers_set.items():
        headers[changed.encode()] = value
    headers_bytes = sum(len(name) + len(value) for name, value in headers.items())
    if headers_bytes > HEADERS_BYTES_MAX:
        return _too_large(headers_bytes)
    parts = [*_optional(_PAYLOAD, payload), *_optional(_CONTENT_TYPE, content_type), *kept]
    parts += (_header_field(name, value) for name, value in sorted(headers.items()))
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


def _header(element: bytes) -> tuple[bytes, bytes]:
    """Return name and content of a map entry."""
    name = value = b""
    for number, _, content in wire.fields(element):
        if number == _NAME and isinstance(content, bytes):
            name = content
        elif number == _CONTENT and isinstance(content, bytes):
            value = content
    return name, value


def _header_field(name: bytes, value: bytes) -> bytes:
    element = wire.length_delimited(_NAME, name) + wire.length_delimited(_CONTENT, value)
    return wire.length_delimited(_HEADERS, element)
