"""The port of probes and metrics answers probes under thousands of other connections."""

import asyncio
from contextlib import suppress

import pytest

from taskraft_service.process import probes
from taskraft_service.process.probes import CONNECTIONS_MAX, REQUEST_BYTES_MAX, ProbeServer
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

LARGE = bytes(32 << 20)
GET = b"GET /livez HTTP/1.1\r\n"


async def livez(_request):
    return probes.plain_answer(200, "alive")


async def large(_request):
    return 200, "text/plain", LARGE


@pytest.fixture
async def server():
    one = ProbeServer({"/livez": livez, "/large": large})
    one.port = await one.start("127.0.0.1", 0)
    yield one
    await one.stop()


@pytest.fixture
async def opened(server):
    """Return a function that opens a connection and sends its first bytes."""
    writers = []

    async def open_one(opening):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.append(writer)
        writer.write(opening)
        return reader

    yield open_one
    for writer in writers:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def answer(reader):
    """Return everything that arrives until the server closes the connection."""
    async with asyncio.timeout(20):
        with suppress(ConnectionError):
            return await reader.read()
    return b""


@pytest.mark.parametrize("opening", [b"", b"G", GET, GET + b"Host: x\r\n"])
async def test_a_thousand_unfinished_requests_do_not_keep_a_probe_out(server, opened, opening):
    readers = []
    for _ in range(1000):
        readers.append(await opened(opening))
        assert len(server.connections) <= CONNECTIONS_MAX
    for reader in readers[: 1000 - CONNECTIONS_MAX]:
        assert await answer(reader) == b""
    assert b"alive" in await answer(await opened(GET + b"\r\n"))


@pytest.mark.parametrize("opening", [b"", b"G", GET, GET + b"Host: x\r\n"])
async def test_an_unfinished_request_is_closed_after_a_time_limit(
    server, opened, monkeypatch, opening
):
    monkeypatch.setattr(probes, "REQUEST_SECONDS", 0.1)
    assert await answer(await opened(opening)) == b""
    await turns_until(lambda: len(server.connections) == 0)


@pytest.mark.parametrize(
    ("headers", "is_answered"),
    [
        (b"x: y\r\n" * 1000, True),
        (b"x: y\r\n" * (REQUEST_BYTES_MAX // 6 + 1), False),
        (b"x: " + bytes(3000) + b"\r\n", True),
        (b"x: " + bytes(5000) + b"\r\n", False),
        (b"x: " + bytes(1 << 20), False),
    ],
)
async def test_a_request_has_a_limited_size(server, opened, headers, is_answered):
    reader = await opened(GET + headers + b"\r\n")
    assert (b"alive" in await answer(reader)) is is_answered
    await turns_until(lambda: len(server.connections) == 0)


async def test_an_answer_that_the_client_does_not_read_is_dropped(server, opened, monkeypatch):
    monkeypatch.setattr(probes, "REQUEST_SECONDS", 0.1)
    reader = await opened(b"")
    reader._transport.pause_reading()
    reader._transport.write(b"GET /large HTTP/1.1\r\n\r\n")
    await turns_until(lambda: len(server.connections) == 1)
    await turns_until(lambda: len(server.connections) == 0)
    assert await answer(await opened(GET + b"\r\n"))


async def test_a_large_answer_arrives(server, opened):
    reader = await opened(b"GET /large HTTP/1.1\r\n\r\n")
    assert len(await answer(reader)) > len(LARGE)
