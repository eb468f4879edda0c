"""Both implementations of ``RpcServer`` serve a table of methods in the same way."""

import asyncio
import struct
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from taskraft_service.access.caller import Unauthenticated
from taskraft_service.api.rpc.method_table import CallKind, ServedMethod, guard
from taskraft_service.api.rpc.rpc_server import PortTaken, ServerLimits
from tests.cluster.hostile_frames import (
    DATA,
    END_HEADERS,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    call_headers,
    frame,
    header,
)
from tests.service.api.rpc.servers import SERVERS, server_class

pytestmark = pytest.mark.real_time

PATH = "/taskraft.v1.TaskService/"
LIMITS = {"received_bytes_max": 1 << 20, "sent_bytes_max": 1 << 20}
LARGE = bytes(300_000)
"""A message that a call without credentials must not make a server hold."""


class Refusing:
    """Accepts no caller, unlike the authenticators of a node."""

    def authenticate(self, context):
        raise Unauthenticated("unknown")

    def has_valid_token(self, metadata):
        return False


class Handlers:
    """Methods that show what the server makes of a call."""

    def __init__(self):
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.written = 0
        self.handled = 0

    async def echo(self, raw, context):
        self.handled += 1
        context.set_trailing_metadata((("kept-bin", b"\x00\xff"), ("kept", "yes")))
        return raw

    async def describe(self, _raw, context):
        found = dict(context.invocation_metadata())
        assert context.peer().startswith("ipv4:127.0.0.1:")
        assert found["given-bin"] == b"\xff\x00"
        left = context.time_remaining()  # gRPC rounds a deadline up, so 60.001 is possible
        return f"{found['given']} {left is not None and 0 < left < 61}".encode()

    async def fail(self, raw, context):
        details = (("grpc-status-details-bin", b"\x01\x02"),)
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION, f"50 % of {raw.decode()}\n", details
        )

    async def wait(self, _raw, _context):
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def count(self, raw, context):
        for number in range(int(raw)):
            await context.write(str(number).encode())

    async def flood(self, _raw, context):
        self.started.set()
        try:
            while True:
                await context.write(bytes(10_000))
                self.written += 1
        finally:
            self.cancelled.set()

    async def converse(self, _requests, context):
        await context.send_initial_metadata((("first", "1"),))
        while isinstance(raw := await context.read(), bytes):
            await context.write(raw[::-1])

    async def ignore(self, _requests, context):
        self.started.set()
        await asyncio.Event().wait()

    def table(self):
        async def refuse(_path, context, _error):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown")

        def one(kind, handle, authenticator=None):
            if kind is CallKind.BIDIRECTIONAL:
                return ServedMethod(kind, handle, handle)
            guarded = guard("", handle, authenticator or Refusing(), refuse)
            return ServedMethod(kind, handle, guarded, authenticator or Open())

        return {
            PATH + "Echo": one(CallKind.UNARY, self.echo, Open()),
            PATH + "Guarded": one(CallKind.UNARY, self.echo, Refusing()),
            PATH + "Describe": one(CallKind.UNARY, self.describe, Open()),
            PATH + "Fail": one(CallKind.UNARY, self.fail, Open()),
            PATH + "Wait": one(CallKind.UNARY, self.wait, Open()),
            PATH + "Count": one(CallKind.SERVER_STREAMING, self.count, Open()),
            PATH + "Flood": one(CallKind.SERVER_STREAMING, self.flood, Open()),
            PATH + "Converse": one(CallKind.BIDIRECTIONAL, self.converse),
            PATH + "Ignore": one(CallKind.BIDIRECTIONAL, self.ignore),
        }


class Open:
    """Accepts every caller."""

    def authenticate(self, context):
        return None

    def has_valid_token(self, metadata):
        return True


@asynccontextmanager
async def serving(edge, **limits):
    handlers = Handlers()
    server = server_class(edge)(handlers.table(), ServerLimits(100, 100, **(LIMITS | limits)))
    port = server.listen("127.0.0.1:0")
    await server.start()
    options = (("grpc.max_receive_message_length", -1),)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            yield handlers, channel, server, port
    finally:
        await server.stop(0)


@pytest.fixture(params=SERVERS)
async def bench(request):
    async with serving(request.param) as one:
        yield one


async def code_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


@pytest.mark.parametrize("size", [0, 1, 20_000, 300_000, 1 << 20])
async def test_a_message_of_any_size_is_answered(bench, size):
    _, channel, *_ = bench
    message = bytes(range(256)) * (size // 256 + 1)
    assert await channel.unary_unary(PATH + "Echo")(message[:size], timeout=20) == message[:size]


async def test_many_calls_at_once_are_answered(bench):
    _, channel, *_ = bench
    echo = channel.unary_unary(PATH + "Echo")
    messages = [str(number).encode() for number in range(99)]
    assert await asyncio.gather(*(echo(message, timeout=20) for message in messages)) == messages


async def test_a_channel_to_several_addresses_is_served(bench):
    *_, port = bench
    address = f"127.0.0.1:{port}"
    async with grpc.aio.insecure_channel(f"ipv4:{address},{address}") as channel:
        assert await channel.unary_unary(PATH + "Echo")(b"x", timeout=20) == b"x"


async def test_metadata_and_the_deadline_reach_the_handler(bench):
    _, channel, *_ = bench
    metadata = (("given", "text"), ("given-bin", b"\xff\x00"))
    answer = await channel.unary_unary(PATH + "Describe")(b"", timeout=60, metadata=metadata)
    assert answer == b"text True"


async def test_trailing_metadata_reach_the_client(bench):
    _, channel, *_ = bench
    call = channel.unary_unary(PATH + "Echo")(b"x", timeout=20)
    await call
    trailing = dict(await call.trailing_metadata())
    assert (trailing["kept"], trailing["kept-bin"]) == ("yes", b"\x00\xff")


async def test_an_error_has_its_text_and_details(bench):
    _, channel, *_ = bench
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(PATH + "Fail")("ä".encode(), timeout=20)
    error = caught.value
    assert (error.code(), error.details()) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "50 % of ä\n",
    )
    assert dict(error.trailing_metadata())["grpc-status-details-bin"] == b"\x01\x02"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_compressed_message_is_read(bench, compression):
    _, channel, *_ = bench
    echo = channel.unary_unary(PATH + "Echo")
    assert await echo(LARGE, timeout=20, compression=compression) == LARGE


async def test_an_unknown_method_is_not_implemented(bench):
    _, channel, *_ = bench
    call = channel.unary_unary(PATH + "Nothing")(b"", timeout=20)
    assert await code_of(call) is grpc.StatusCode.UNIMPLEMENTED


async def test_messages_above_the_maximum_are_refused_in_both_directions(bench):
    _, channel, *_ = bench
    call = channel.unary_unary(PATH + "Echo")(bytes((1 << 20) + 1), timeout=20)
    assert await code_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
    bomb = channel.unary_unary(PATH + "Echo")(
        bytes(1 << 22), timeout=20, compression=grpc.Compression.Gzip
    )
    assert await code_of(bomb) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_deadline_ends_the_call_on_both_sides(bench):
    handlers, channel, *_ = bench
    call = channel.unary_unary(PATH + "Wait")(b"", timeout=0.2)
    assert await code_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(handlers.cancelled.wait(), 20)


async def test_a_cancellation_reaches_the_handler(bench):
    handlers, channel, *_ = bench
    call = channel.unary_unary(PATH + "Wait")(b"", timeout=60)
    await asyncio.wait_for(handlers.started.wait(), 20)
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), 20)
    assert call.cancelled()


async def test_a_lost_connection_cancels_the_handler(bench):
    handlers, channel, *_ = bench
    call = channel.unary_unary(PATH + "Wait")(b"", timeout=60)
    await asyncio.wait_for(handlers.started.wait(), 20)
    await channel.close()
    await asyncio.wait_for(handlers.cancelled.wait(), 20)
    assert call.done()


async def test_a_stream_delivers_all_messages_in_order(bench):
    _, channel, *_ = bench
    call = channel.unary_stream(PATH + "Count")(b"5000", timeout=60)
    assert [int(raw) async for raw in call] == list(range(5_000))


async def test_a_client_that_reads_nothing_stops_the_handler(bench):
    handlers, channel, *_ = bench
    call = channel.unary_stream(PATH + "Flood")(b"", timeout=60)
    await asyncio.wait_for(handlers.started.wait(), 20)
    written = -1
    while handlers.written > written:  # the writes stop once all buffers are full
        written = handlers.written
        await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(turns(2_000))), 20)
    assert written * 10_000 < 16 << 20
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), 20)


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_both_sides_send_until_the_client_ends(bench):
    _, channel, *_ = bench
    call = channel.stream_stream(PATH + "Converse")(timeout=60)
    assert dict(await call.initial_metadata())["first"] == "1"
    for message in (b"abc", LARGE + b"x", b""):
        await call.write(message)
        assert await call.read() == message[::-1]
    for number in range(1_000):
        await call.write(b"%d." % number)
    for number in range(1_000):
        assert await call.read() == (b"%d." % number)[::-1]
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_handler_that_reads_nothing_stops_the_client(bench):
    handlers, channel, *_ = bench
    call = channel.stream_stream(PATH + "Ignore")(timeout=60)

    async def write():
        for _ in range(10_000):
            await call.write(bytes(10_000))

    writing = asyncio.ensure_future(write())
    await asyncio.wait_for(handlers.started.wait(), 20)
    await turns(5_000)
    assert not writing.done()
    call.cancel()
    await asyncio.wait((writing,))


async def test_a_taken_port_is_reported(bench):
    *_, server, port = bench
    with pytest.raises(PortTaken, match=str(port)):
        type(server)({}, ServerLimits(1, 1)).listen(f"127.0.0.1:{port}")


async def test_a_stopped_server_ends_its_calls(bench):
    handlers, channel, server, _ = bench
    call = channel.unary_unary(PATH + "Wait")(b"", timeout=60)
    await asyncio.wait_for(handlers.started.wait(), 20)
    await server.stop(0.05)
    await asyncio.wait_for(handlers.cancelled.wait(), 20)
    assert await code_of(call) in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_a_call_in_progress_ends_within_the_grace(bench):
    handlers, channel, server, _ = bench
    call = channel.stream_stream(PATH + "Converse")(timeout=60)
    await call.initial_metadata()
    stopping = asyncio.ensure_future(server.stop(20))
    await call.write(b"ab")
    assert await call.read() == b"ba"
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK
    await asyncio.wait_for(stopping, 20)
    assert handlers.handled == 0


# ---------------------------------------------------------------------- callers without credentials


@asynccontextmanager
async def opened(port, method, *fields):
    """Open a call with raw frames; yield the streams of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    headers = call_headers(method) + b"".join(header(*field) for field in fields)
    writer.write(frame(HEADERS, END_HEADERS, 1, headers))
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.transport.abort()


async def end_of_call(reader):
    """Return the type of the frame that ends the call."""
    while True:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == RST_STREAM or (head[3] == HEADERS and head[4] & 1):
            return head[3]


async def test_a_caller_without_credentials_is_refused_before_its_message_arrives(bench):
    handlers, _, _, port = bench
    async with opened(port, "Guarded") as (reader, writer):
        writer.write(frame(DATA, 0, 1, struct.pack(">BI", 0, len(LARGE)) + bytes(10_000)))
        assert await end_of_call(reader) == HEADERS
    assert handlers.handled == 0


@pytest.mark.parametrize("prefix", [b"\x02\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01x"])
async def test_a_malformed_message_ends_the_call_only(bench, prefix):
    _, channel, _, port = bench
    async with opened(port, "Echo") as (reader, writer):
        writer.write(frame(DATA, 1, 1, prefix))
        assert await end_of_call(reader)
    assert await channel.unary_unary(PATH + "Echo")(b"x", timeout=20) == b"x"
