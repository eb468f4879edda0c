"""Half-sent calls, floods of resets and large metadata do not harm other callers.

grpc.aio has no bound for half-sent messages, so the tests of these bounds need the native edge.
"""

import asyncio
import dataclasses
import os
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from taskraft_replication.tls.files import CurrentTls
from taskraft_service.api.rpc.method_table import CallKind, ServedMethod
from taskraft_service.api.rpc.rpc_server import METADATA_BYTES_MAX, ServerLimits
from tests.authority import Authority
from tests.cluster.hostile_frames import (
    ACK,
    CANCEL,
    DATA,
    END_STREAM,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from tests.service.api.rpc.raw_connection import (
    WIDE_OPENING,
    become_known,
    begun_call,
    connection,
    first_ended,
    next_frame,
    part_of_message,
)
from tests.service.api.rpc.servers import SERVERS, server_class
from tests.service.api.rpc.test_servers import PATH, code_of, serving

pytestmark = pytest.mark.real_time

NATIVE = SERVERS[1:]
SMALL = 60_000
"""Size of a message that the native edge receives before the caller is authenticated."""
LARGE = 200_000
"""Size of a message that the native edge receives once a handler asks for the message."""
MIB = 1 << 20
HALF_SENT, ANNOUNCED = 16, 64 * MIB
"""Half-sent messages on as many connections, and the size that each announces."""
WINDOW = 65_535
"""Flow-control window of the connection of an unknown client of the native edge."""
PART_MAX = 4 * MIB
"""Bytes that an attacker sends of a message, if flow control permits."""


async def is_answered(channel, size=1):
    """Return whether a call on another connection is answered."""
    message = bytes(size)
    return await channel.unary_unary(PATH + "Echo")(message, timeout=60) == message


async def is_answered_at_last(channel):
    """Repeat a call that grpc.aio refuses while its queue of calls is full."""
    async with asyncio.timeout(60):
        while True:
            with suppress(grpc.aio.AioRpcError):
                return await is_answered(channel)


def half_sent(count, size, part):
    """Return the frames of some calls whose messages do not arrive completely."""
    streams = range(3, 2 * count + 2, 2)
    return b"".join(begun_call(one, "Echo") + part_of_message(one, size, part) for one in streams)


@pytest.mark.parametrize("edge", SERVERS)
@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_half_sent_calls_do_not_keep_others_from_an_answer(edge, size):
    async with (
        serving(edge) as (handlers, channel, _, port),
        connection(port) as (_, writer),
    ):
        writer.write(half_sent(20, size, 2_000))  # less than the first window of a connection
        assert await is_answered(channel)
        assert handlers.handled == 1


@pytest.mark.parametrize("edge", NATIVE)
@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_half_sent_messages_have_a_common_budget(edge, size):
    """The budget has room for two of four half-sent messages."""
    part = size - 10_000
    budget = {"unfinished_small_bytes_max": 3 * part - 1, "unfinished_bytes_max": 3 * part - 1}
    async with serving(edge, **budget) as (_, channel, _, port):
        for _ in range(2):  # the end of a connection frees the budget
            async with connection(port, WIDE_OPENING) as (reader, writer):
                await become_known(reader, writer)
                writer.write(half_sent(4, size, part))
                refused = (1, await first_ended(reader, 1))
                refused = (*refused, await first_ended(reader, *refused))
                for stream in {3, 5, 7, 9}.difference(refused):
                    writer.write(frame(DATA, END_STREAM, stream, bytes(size - part)))
                    ended = await first_ended(reader, *refused)
                    assert ended == stream, "the rest completes a call"
                    refused = (*refused, ended)
        assert await is_answered(channel, size)


@pytest.mark.parametrize("edge", NATIVE)
@pytest.mark.parametrize(
    "begin",
    [b"", part_of_message(3, SMALL, 1), part_of_message(3, LARGE, 1)],
    ids=["headers", "small", "large"],
)
async def test_a_request_that_does_not_arrive_ends_its_call_only(edge, begin):
    async with (
        serving(edge, stall_ms=50) as (handlers, _, _, port),
        connection(port) as (reader, writer),
    ):
        writer.write(begun_call(1, "Converse"))
        writer.write(begun_call(3, "Echo") + begin)
        assert await first_ended(reader) == 3
        writer.write(part_of_message(1, 1, 1))
        while (await next_frame(reader))[0] != DATA:
            pass  # a stream may be silent between its messages
        assert handlers.handled == 0


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_flood_of_resets_harms_its_own_connection_at_most(edge):
    async with serving(edge) as (_, channel, _, port):
        async with connection(port) as (reader, writer):
            # The server may close the connection before it has read all frames.
            with suppress(ConnectionError):
                for stream in range(1, 10_000, 2):
                    writer.write(begun_call(stream, "Wait") + frame(RST_STREAM, 0, stream, CANCEL))
                await writer.drain()
                if edge == "native":
                    await reader.read()  # until the server closes the connection
        assert await (is_answered if edge == "native" else is_answered_at_last)(channel)


@pytest.mark.parametrize("edge", SERVERS)
async def test_metadata_up_to_the_maximum_are_accepted(edge):
    async with serving(edge) as (_, channel, *_):
        echo = channel.unary_unary(PATH + "Echo")
        most = METADATA_BYTES_MAX - 1_000  # the client library adds headers of its own
        assert await echo(b"x", timeout=60, metadata=(("x-filler", "y" * most),)) == b"x"
        more = (("x-filler", "y" * METADATA_BYTES_MAX),)
        call = echo(b"x", timeout=60, metadata=more)
        assert await code_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await is_answered(channel)


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_connection_that_does_not_complete_tls_is_closed(edge, tmp_path):
    tls = CurrentTls(Authority(tmp_path).server())
    server = server_class(edge)({}, ServerLimits(10, 10, handshake_ms=50))
    port = server.listen("127.0.0.1:0", tls)
    await server.start()
    try:
        async with connection(port, b"\x16\x03\x01") as (reader, _):
            with suppress(ConnectionError):
                assert len(await reader.read()) < 100, "at most an alert of TLS"
    finally:
        await server.stop(0)


# -------------------------------------------------------------------------- before authentication


def resident_bytes():
    """Return the memory of this process, in which the server and the attacker run."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def next_of(link):
    """Block until a frame has come; return its type, flags, stream and payload."""
    head = link.recv(9, socket.MSG_WAITALL)
    assert len(head) == 9, "the server closed the connection"
    size = int.from_bytes(head[:3], "big")
    payload = link.recv(size, socket.MSG_WAITALL) if size else b""
    return head[3], head[4], int.from_bytes(head[5:], "big"), payload


def granted(link):
    """Return the bytes that the server granted to the connection until it had read everything."""
    link.sendall(frame(PING, 0, 0, b"all read"))
    more = 0
    while (got := next_of(link))[:2] != (PING, ACK):
        kind, _, stream, payload = got
        if (kind, stream) == (WINDOW_UPDATE, 0):
            more += int.from_bytes(payload, "big")
    return more


def half_send(link):
    """Send as much of a large message as flow control permits, up to a part of the message."""
    link.sendall(WIDE_OPENING)
    while next_of(link)[0] != SETTINGS:
        pass
    link.sendall(frame(SETTINGS, ACK, 0))
    link.sendall(begun_call(1, "Guarded") + part_of_message(1, ANNOUNCED, WINDOW - 5))
    sent, idle_rounds = WINDOW, 0
    while sent < PART_MAX and idle_rounds < 3:  # the reply to a ping may precede a grant
        more = granted(link)
        idle_rounds = 0 if more else idle_rounds + 1
        for start in range(0, more, 16_384):
            link.sendall(frame(DATA, 0, 1, bytes(min(16_384, more - start))))
        sent += more


@pytest.mark.parametrize("edge", NATIVE)
async def test_half_sent_calls_hold_little_memory_before_their_callers_are_known(edge):
    """The event loop is blocked, so that no caller is authenticated, and none is refused."""
    limits = {"received_bytes_max": ANNOUNCED, "client_ping_ms_min": 0}
    async with serving(edge, **limits) as (handlers, channel, server, port):
        assert await is_answered(channel, LARGE)
        before = resident_bytes()
        with ExitStack() as stack:
            for _ in range(HALF_SENT):
                link = socket.create_connection(("127.0.0.1", port), 60)
                half_send(stack.enter_context(link))
            grown = resident_bytes() - before
            assert server.counts().in_use["calls"] == HALF_SENT
            held = server.counts().in_use["unfinished_unknown_bytes"]
        assert grown < 16 * MIB
        assert HALF_SENT * WINDOW < held < HALF_SENT * 2 * WINDOW
        assert handlers.handled == 1


@pytest.mark.parametrize("edge", NATIVE)
async def test_a_known_client_does_not_use_the_budget_of_unknown_ones(edge):
    async with serving(edge, unfinished_unknown_bytes_max=0) as (_, channel, server, _):
        large = channel.unary_unary(PATH + "Echo")(bytes(LARGE), timeout=60)
        assert await code_of(large) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.counts().limited["unfinished_unknown_bytes_max"] == 1
        await channel.unary_unary(PATH + "Guarded")(b"without credentials", timeout=60)
        large = channel.unary_unary(PATH + "Echo")(bytes(LARGE), timeout=60)
        assert await code_of(large) is grpc.StatusCode.RESOURCE_EXHAUSTED, "still unknown"
        assert await is_answered(channel)
        assert await is_answered(channel, LARGE)


# -------------------------------------------------------------------------------------------- TLS


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_client_that_speaks_no_http2_is_refused_by_tls(edge, tmp_path):
    authority = Authority(tmp_path)
    files = dataclasses.replace(authority.server(), authority=None)
    server = server_class(edge)({}, ServerLimits(10, 10))
    port = server.listen("127.0.0.1:0", CurrentTls(files))
    await server.start()
    trust = ssl.create_default_context(cafile=str(authority.path))
    try:
        for offered in (["h2"], ["http/1.1", "h2"]):
            trust.set_alpn_protocols(offered)
            reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            writer.close()
        trust.set_alpn_protocols(["http/1.1"])
        with suppress(ConnectionError, ssl.SSLError):
            reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" not in await reader.read()
            writer.close()
    finally:
        await server.stop(0)


@pytest.mark.parametrize("edge", SERVERS)
async def test_a_client_certificate_of_a_stranger_is_refused(edge, tmp_path):
    """With an authority for clients, a handler learns the names in the client's certificate."""
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "strangers")
    names = []

    async def describe(raw, context):
        names.append(context.auth_context()["x509_common_name"])
        return raw

    method = ServedMethod(CallKind.UNARY, describe, describe)
    server = server_class(edge)({PATH + "Describe": method}, ServerLimits(10, 10))
    port = server.listen("127.0.0.1:0", CurrentTls(authority.server()))
    await server.start()
    try:
        for files in (authority.sign("someone"), stranger.sign("someone"), None):
            own = () if files is None else (files.key.read_bytes(), files.certificate.read_bytes())
            credentials = grpc.ssl_channel_credentials(authority.certificate, *own)
            address = f"localhost:{port}"
            async with grpc.aio.secure_channel(
                address, credentials, options=(("grpc.use_local_subchannel_pool", 1),)
            ) as channel:
                call = channel.unary_unary(PATH + "Describe")(b"", timeout=10)
                if files is not None and files.certificate.parent == authority.folder:
                    assert await call == b""
                else:
                    assert await code_of(call) is grpc.StatusCode.UNAVAILABLE
        assert names == [[b"someone"]]
    finally:
        await server.stop(0)
