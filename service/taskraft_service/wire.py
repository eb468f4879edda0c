"""Read and write protobuf's wire format without building whole messages.

Requests are stored as received, so their parts are located by offset instead of being parsed and
encoded again. Source: Protocol Buffers documentation, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_FIXED_WIDTHS: Final = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES_MAX: Final = 10
_SMALL_LENGTHS: Final = 1 << 14


class WireMalformed(Exception):
    """The bytes are not in protobuf's wire format; none of them may be used."""


def varint(number: int) -> bytes:
    """Return ``number`` as a varint; a negative number takes ten bytes, in two's complement."""
    if number < 0:
        number &= 0xFFFF_FFFF_FFFF_FFFF
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 127 | 128, number >> 7))
    if number < 0x20_0000:
        return bytes((number & 127 | 128, number >> 7 & 127 | 128, number >> 14))
    if number < 0x1000_0000:
        third = number >> 14 & 127 | 128
        return bytes((number & 127 | 128, number >> 7 & 127 | 128, third, number >> 21))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the varint that begins at ``at``, and the offset of its end.

    Raises:
        WireMalformed: the varint does not end within ten bytes or within ``raw``.
    """
    if at < len(raw) and raw[at] < 128:
        return raw[at], at + 1
    number = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(raw))):
        byte = raw[place]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place + 1
        shift += 7
    raise WireMalformed("a varint does not end")


def tag(field: int, wire_type: int) -> bytes:
    """Return the tag of a field."""
    return varint(field << 3 | wire_type)


def length_delimited(field: int, content: bytes) -> bytes:
    """Return ``content`` as a field: a message, a string or bytes."""
    return b"".join((tag(field, LENGTH), varint(len(content)), content))


def repeated(field: int, elements: Iterable[bytes]) -> bytes:
    """Return messages, strings or bytes as the elements of a repeated field, in order."""
    key = tag(field, LENGTH)
    parts: list[bytes] = []
    for element in elements:
        parts += (key, varint(len(element)), element)
    return b"".join(parts)


def fields(raw: bytes) -> Iterator[tuple[int, int, bytes | int]]:
    """Yield number, wire type and value of each field: an int for varints, otherwise bytes.

    Raises:
        WireMalformed: ``raw`` is cut off or contains a group.
    """
    at, end = 0, len(raw)
    while at < end:
        key, at = read_varint(raw, at)
        wire_type = key & 7
        if wire_type == VARINT:
            number, at = read_varint(raw, at)
            yield key >> 3, wire_type, number
            continue
        if wire_type == LENGTH:
            size, at = read_varint(raw, at)
        else:
            size = _FIXED_WIDTHS.get(wire_type, -1)
        if size < 0 or at + size > end:
            raise WireMalformed("a field is cut off or of an unknown type")
        yield key >> 3, wire_type, raw[at : at + size]
        at += size


def elements(raw: bytes, field: int) -> list[bytes]:
    """Return the elements of a repeated message field of ``raw`` as received, in order.

    Raises:
        WireMalformed: ``raw`` is not a message.
    """
    return split(raw, 0, len(raw), field)[0]


def split(data: bytes, at: int, end: int, field: int) -> tuple[list[bytes], bytes]:
    """Return the elements of a repeated message field, and the message without the field.

    The message begins at ``at`` and ends at ``end``. Adjacent elements often have the same length.
    The function therefore first checks whether the next element begins at the same distance
    (bench/codec.py).

    Raises:
        WireMalformed: the bytes are not a message.
    """
    found: list[bytes] = []
    rest: list[bytes] = []
    rest_at = at
    wanted = field << 3 | LENGTH
    while at < end:
        begin = at
        # Most tags and lengths have one byte; reading them inline takes a third of the time of a
        # call.
        key = data[at]
        if key < 128 and at + 1 < end and (size := data[at + 1]) < 128 and key & 7 == LENGTH:
            at += 2
        else:
            key, at = read_varint(data, at)
            size, at = _size(data, at, key & 7)
            if at > end:
                break
        if key != wanted:
            at += size
            continue
        if rest_at < begin:
            rest.append(data[rest_at:begin])
        head, head_bytes = data[begin:at], at - begin
        at = begin
        while data.startswith(head, at, end):
            start = at + head_bytes
            at = start + size
            found.append(data[start:at])
        rest_at = at
    if at != end:
        raise WireMalformed("a field is cut off")
    rest.append(data[rest_at:end])
    return found, b"".join(rest)


def last_content(raw: bytes, field: int) -> bytes:
    """Return the last value of a string, bytes or message field of ``raw``; empty if absent.

    As in a parser, the last occurrence counts, and an occurrence of another wire type does not.
    Equal headers of adjacent fields are skipped without decoding, as in ``elements``.

    Raises:
        WireMalformed: ``raw`` is cut off or contains a group.
    """
    found = b""
    wanted = field << 3 | LENGTH
    at, end = 0, len(raw)
    while at < end:
        begin = at
        key = raw[at]  # read inline as in ``split``
        if key < 128 and at + 1 < end and (size := raw[at + 1]) < 128 and key & 7 == LENGTH:
            at += 2
        else:
            key, at = read_varint(raw, at)
            size, at = _size(raw, at, key & 7)
        if key == wanted:
            found = raw[at : at + size]
            at += size
            continue
        head = raw[begin:at]
        at += size
        width = at - begin
        while raw.startswith(head, at):
            at += width
    if at != end:
        raise WireMalformed("a field is cut off")
    return found


def _size(raw: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Return the size of a field's value, and the offset of its begin."""
    if wire_type == LENGTH:
        return read_varint(raw, at)
    if wire_type == VARINT:
        return 0, read_varint(raw, at)[1]
    width = _FIXED_WIDTHS.get(wire_type)
    if width is None:
        raise WireMalformed("a field is of an unknown type")
    return width, at


@lru_cache(maxsize=_SMALL_LENGTHS)
def sole_field_prefix(field: int, message_bytes: int) -> bytes:
    """Return the prefix of a message of this length that has only one length-delimited field.

    The result is empty if no such message has this length. A message of this length contains no
    other field if it starts with the prefix.
    """
    key = tag(field, LENGTH)
    for width in range(1, _VARINT_BYTES_MAX):
        content = message_bytes - len(key) - width
        if content >= 0 and len(varint(content)) == width:
            return key + varint(content)
    return b""
