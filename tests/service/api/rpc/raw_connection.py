"""A connection to the client port on which a test writes raw frames of HTTP/2."""

import asyncio
import struct
from contextlib import asynccontextmanager, suppress

from tests.cluster.hostile_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    frame,
)

OPENING = PREFACE + frame(SETTINGS, 0, 0)
INITIAL_WINDOW_SIZE = 4
WIDE_OPENING = (
    PREFACE
    + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 1 << 24))
    + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 24))
)
"""The opening of a client that accepts large answers."""
SECONDS_MAX = 60


@asynccontextmanager
async def connection(port, opening=OPENING):
    """Open a connection; yield its streams of bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(opening)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def next_frame(reader):
    """Return the type, the flags, the stream and the payload of the next frame."""
    head = await reader.readexactly(9)
    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4], int.from_bytes(head[5:], "big"), payload


async def first_received(reader, *kinds, flags=0):
    """Return the payload of the next frame of some types that has all of the flags."""
    while True:
        kind, found, _, payload = await next_frame(reader)
        if kind in kinds and found & flags == flags:
            return payload


async def received(reader, kind, flags=0):
    """Return the payload of the next frame of a type that has all of the flags."""
    return await first_received(reader, kind, flags=flags)


async def become_known(reader, writer):
    """Complete the opening of a connection to the native edge with an authenticated call.

    The windows of the edge are large from then on. The call uses stream 1 and has ended.
    """
    await received(reader, SETTINGS)
    writer.write(frame(SETTINGS, ACK, 0) + begun_call(1, "Echo") + part_of_message(1, 1, 1))
    writer.write(frame(DATA, END_STREAM, 1))
    is_wide = has_ended = False
    while not (is_wide and has_ended):
        kind, flags, *_ = await next_frame(reader)
        is_wide = is_wide or kind == WINDOW_UPDATE
        has_ended = has_ended or (kind == HEADERS and flags & END_STREAM)


async def first_ended(reader, *ended):
    """Return the stream of the next call that the server ends, besides calls that have ended.

    A server may reset a stream after its status, so that the client sends no more.
    """
    while True:
        kind, flags, stream, _ = await next_frame(reader)
        is_end = kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM)
        if is_end and stream not in ended:
            return stream


def begun_call(stream, method):
    """Return the frame that begins a call."""
    return frame(HEADERS, END_HEADERS, stream, call_headers(method))


def part_of_message(stream, size, part):
    """Return the frames of the first bytes of a message."""
    content = struct.pack(">BI", 0, size) + bytes(part)
    pieces = [content[start : start + 16_384] for start in range(0, len(content), 16_384)]
    return b"".join(frame(DATA, 0, stream, piece) for piece in pieces)
