"""Both servers keep their limits of connections, calls, metadata, pings and idle time.

The caller writes raw frames of HTTP/2, because client libraries obey the limits.
"""

import asyncio
import struct
from contextlib import suppress

import grpc
import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.method_table import CallKind, ServedMethod
from taskraft_service.api.rpc.rpc_server import (
    CALLS_PER_CONNECTION_MAX,
    METADATA_BYTES_MAX,
    ServerLimits,
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
from tests.service.api.rpc.raw_connection import connection, first_received, received
from tests.service.api.rpc.servers import SERVERS, server_class

pytestmark = pytest.mark.real_time

MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE = 3, 6
"""Names of values in a SETTINGS frame."""


async def wait(_requests, context):
    """Serve a call that waits for its client."""
    await context.read()


METHOD = ServedMethod(CallKind.BIDIRECTIONAL, wait, wait)


@pytest.fixture(params=SERVERS)
async def served(request):
    """Return a function that starts a server without services and returns its port."""
    servers = []

    async def start(connections_max=100, table=None, **limits):
        one = server_class(request.param)(
            table or {}, ServerLimits(1_000, connections_max, **limits)
        )
        port = one.listen("127.0.0.1:0")
        await one.start()
        servers.append(one)
        return port

    yield start
    for one in servers:
        await one.stop(0)


async def test_a_connection_is_told_its_limits(served):
    async with connection(await served()) as (reader, _):
        settings = dict(struct.iter_unpack(">HI", await received(reader, SETTINGS)))
    assert settings[MAX_CONCURRENT_STREAMS] == CALLS_PER_CONNECTION_MAX
    # The native edge announces more than it accepts, so that it can refuse a call by its status.
    assert settings[MAX_HEADER_LIST_SIZE] in {METADATA_BYTES_MAX, 4 * METADATA_BYTES_MAX}


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


async def test_a_connection_without_a_call_is_closed(served):
    async with connection(await served(idle_ms=50)) as (reader, _):
        assert b"connection idle" in await received(reader, GOAWAY)


@pytest.mark.parametrize("served", SERVERS[1:], indirect=True)
async def test_a_silent_connection_is_pinged_and_then_closed(served):
    async with connection(await served(ping_ms=50)) as (reader, writer):
        writer.write(frame(SETTINGS, ACK, 0))
        await received(reader, PING)
        with pytest.raises(asyncio.IncompleteReadError):
            await received(reader, GOAWAY)


@pytest.mark.parametrize("served", SERVERS[1:], indirect=True)
async def test_a_connection_that_replies_to_pings_is_kept(served):
    pings = 0
    for ping_ms in (50, 500, 5_000):  # on a busy machine, a reply may be too late
        async with connection(await served(ping_ms=ping_ms)) as (reader, writer):
            writer.write(frame(SETTINGS, ACK, 0))
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                pings = 0
                while pings < 3:
                    writer.write(frame(PING, ACK, 0, await received(reader, PING)))
                    pings += 1
                break
    assert pings == 3


async def test_a_connection_without_http2_is_closed(served):
    async with connection(await served(handshake_ms=50), PREFACE[:5]) as (reader, _):
        sent = b""
        with suppress(ConnectionError):
            sent = await reader.read()  # until the end of the connection
        assert len(sent) < 1_000, "settings, and the reason of the end"


async def test_a_connection_that_does_not_acknowledge_the_settings_is_closed(served):
    async with connection(await served(handshake_ms=50)) as (reader, _):
        assert b"SETTINGS" in (await received(reader, GOAWAY)).upper()


async def test_a_connection_has_a_maximum_of_concurrent_calls(served):
    table = {"/taskraft.v1.TaskService/PutTasks": METHOD}
    async with connection(await served(table=table)) as (reader, writer):
        for stream in range(1, 4 * CALLS_PER_CONNECTION_MAX, 2):
            writer.write(frame(HEADERS, END_HEADERS, stream, call_headers("PutTasks")))
        assert await received(reader, RST_STREAM)


async def test_headers_without_end_are_refused(served):
    async with connection(await served()) as (reader, writer):
        filler = header("x-filler", "y" * 100) * 8
        writer.write(frame(HEADERS, 0, 1, call_headers("PutTasks")))
        writer.write(frame(CONTINUATION, 0, 1, filler) * 100)
        writer.write(frame(CONTINUATION, END_HEADERS, 1))
        # The connection may be closed before the last frame is sent.
        with suppress(ConnectionError):
            assert await first_received(reader, HEADERS, GOAWAY), "the call or the connection ended"


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
