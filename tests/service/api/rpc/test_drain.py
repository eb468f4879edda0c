"""Both servers tell clients of their end, and let calls in progress end within the grace."""

import asyncio
from contextlib import suppress

import pytest

from tests.cluster.hostile_frames import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    frame,
)
from tests.service.api.rpc.raw_connection import (
    begun_call,
    connection,
    next_frame,
    part_of_message,
)
from tests.service.api.rpc.servers import SERVERS
from tests.service.api.rpc.test_servers import serving

pytestmark = pytest.mark.real_time


async def replying(reader, writer):
    """Yield the frames of the server, and reply to its pings, as every client does."""
    while True:
        kind, flags, stream, payload = await next_frame(reader)
        if kind == PING and not flags & ACK:
            writer.write(frame(PING, ACK, 0, payload))
        yield kind, flags, stream


async def kinds_until_the_end(frames):
    """Read until the server closes the connection; return the types of the frames."""
    seen = set()
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        async for kind, _, _ in frames:
            seen.add(kind)
    return seen


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_stopping_server_says_goodbye_and_ends_the_call_in_progress(edge):
    async with (
        serving(edge) as (_, _, server, port),
        connection(port) as (reader, writer),
    ):
        frames = replying(reader, writer)
        writer.write(begun_call(1, "Converse") + part_of_message(1, 1, 1))
        while (await anext(frames))[0] != DATA:
            pass
        stopping = asyncio.ensure_future(server.stop(60))
        while (await anext(frames))[0] != GOAWAY:
            pass
        if edge == "native":  # grpc.aio closes its listener at any time after the GOAWAY
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", port)
        writer.write(part_of_message(1, 1, 1))
        while (await anext(frames))[0] != DATA:
            pass
        writer.write(frame(DATA, END_STREAM, 1))
        while (await anext(frames))[:2] != (HEADERS, 5):
            pass
        await kinds_until_the_end(frames)
        await asyncio.wait_for(stopping, 60)


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_call_that_does_not_end_within_the_grace_is_cut_off(edge):
    async with (
        serving(edge) as (handlers, _, server, port),
        connection(port) as (reader, writer),
    ):
        writer.write(begun_call(1, "Ignore"))
        await asyncio.wait_for(handlers.started.wait(), 60)
        stopping = asyncio.ensure_future(server.stop(0.05))
        assert GOAWAY in await kinds_until_the_end(replying(reader, writer))
        await asyncio.wait_for(stopping, 60)
