"""The channel arguments of gRPC act: limits of connections, calls, metadata, pings and idle time.

The caller writes raw frames of HTTP/2, because client libraries obey the limits.
"""

import asyncio
import struct
from contextlib import asynccontextmanager, suppress

import grpc
import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api import server
from taskraft_service.api.server import (
    CALLS_PER_CONNECTION_MAX,
    METADATA_BYTES_MAX,
    Health,
    build_server,
    listen,
)
from tests.cluster.hostile_frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    call_headers,
    frame,
    header,
)

MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE = 3, 6
"""Names of values in a SETTINGS frame."""


OPENING = PREFACE + frame(SETTINGS, 0, 0)


@pytest.fixture
async def served():
    """Return a function that starts a server without services and returns its port."""
    servers = []

    async def start(connections_max=100):
        one = build_server((), Health(), 100, connections_max)
        port = listen(one, "127.0.0.1:0")
        await one.start()
        servers.append(one)
        return port

    yield start
    for one in servers:
        await one.stop(0)


@asynccontextmanager
async def connection(port, opening=OPENING):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(opening)
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


def shorten(monkeypatch, name):
    """Set an option that the server has to 50 ms."""
    options = dict(server._OPTIONS)
    assert options[name] >= 10_000
    monkeypatch.setattr(server, "_OPTIONS", tuple((options | {name: 50}).items()))


async def received(reader, kind, flags=0):
    """Return the payload of the next frame of a type that has all of the flags."""
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == kind and head[4] & flags == flags:
            return payload


async def test_a_connection_is_told_its_limits(served):
    async with connection(await served()) as (reader, _):
        settings = dict(struct.iter_unpack(">HI", await received(reader, SETTINGS)))
    assert settings[MAX_CONCURRENT_STREAMS] == CALLS_PER_CONNECTION_MAX
    assert settings[MAX_HEADER_LIST_SIZE] == METADATA_BYTES_MAX


async def test_a_connection_above_the_maximum_is_closed(served):
    port = await served(connections_max=1)
    async with connection(port) as (first, _):
        await received(first, SETTINGS)
        async with connection(port) as (second, _):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await received(second, SETTINGS)


async def test_a_connection_with_many_pings_is_closed(served):
    async with connection(await served()) as (reader, writer):
        writer.write(frame(PING, 0, 0, bytes(8)) * 10)
        assert b"too_many_pings" in await received(reader, GOAWAY)


async def test_a_connection_without_a_call_is_closed(served, monkeypatch):
    shorten(monkeypatch, "grpc.max_connection_idle_ms")
    async with connection(await served()) as (reader, _):
        assert b"connection idle" in await received(reader, GOAWAY)


async def test_a_connection_without_http2_is_closed(served, monkeypatch):
    shorten(monkeypatch, "grpc.server_handshake_timeout_ms")
    async with connection(await served(), PREFACE[:5]) as (reader, _):
        sent = b""
        with suppress(ConnectionError):
            sent = await reader.read()  # until the end of the connection
        assert len(sent) < 1_000, "settings, and the reason of the end"


async def test_a_connection_that_does_not_acknowledge_the_settings_is_closed(served, monkeypatch):
    shorten(monkeypatch, "grpc.http2.settings_timeout")
    async with connection(await served()) as (reader, _):
        assert b"SETTINGS" in (await received(reader, GOAWAY)).upper()


async def test_a_connection_has_a_maximum_of_concurrent_calls(served):
    """gRPC counts cancelled calls too until the event loop has ended them."""
    async with connection(await served()) as (reader, writer):
        for stream in range(1, 4 * CALLS_PER_CONNECTION_MAX, 2):
            writer.write(frame(HEADERS, END_HEADERS, stream, call_headers("PutTasks")))
            writer.write(frame(RST_STREAM, 0, stream, CANCEL))
        assert await received(reader, RST_STREAM)


async def test_headers_without_end_are_refused(served):
    async with connection(await served()) as (reader, writer):
        filler = header("x-filler", "y" * 100) * 8
        writer.write(frame(HEADERS, 0, 1, call_headers("PutTasks")))
        writer.write(frame(CONTINUATION, 0, 1, filler) * 100)
        writer.write(frame(CONTINUATION, END_HEADERS, 1))
        assert await received(reader, HEADERS) is not None, "the call has ended"


async def test_calls_that_are_cancelled_at_once_leave_nothing(served):
    async with connection(await served()) as (reader, writer):
        for stream in range(1, 2_000, 2):
            writer.write(frame(HEADERS, END_HEADERS, stream, call_headers("PutTasks")))
            writer.write(frame(RST_STREAM, 0, stream, CANCEL))
        writer.write(frame(PING, 0, 0, b"answered"))
        # The server sends pings too, without the flag ACK.
        assert await received(reader, PING, ACK) == b"answered"


async def test_metadata_above_the_maximum_is_refused(node):
    metadata = (("x-filler", "y" * METADATA_BYTES_MAX),)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.tasks.TakeTasks(pb.TakeTasksRequest(), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
