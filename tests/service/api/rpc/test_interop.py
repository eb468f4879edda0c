"""The test cases of gRPC's interoperability tests pass with grpcio over both servers.

``tests/foreign/test_interop.py`` runs gRPC's own client for Go against the same service.
"""

import grpc
import grpc.aio
import pytest

from taskraft_service.api.rpc.rpc_server import ServerLimits
from tests.service.api.rpc.interop_messages import message
from tests.service.api.rpc.interop_service import INITIAL, PATH, TRAILING, interop_table
from tests.service.api.rpc.servers import SERVERS, server_class

pytestmark = pytest.mark.real_time

REQUEST_SIZES, RESPONSE_SIZES = (27_182, 8, 1_828, 45_904), (31_415, 9, 2_653, 58_979)
LARGE_REQUEST, LARGE_RESPONSE = 271_828, 314_159
SECONDS = 60
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"

SimpleRequest, SimpleResponse = message("SimpleRequest"), message("SimpleResponse")
InputRequest, InputResponse = (
    message("StreamingInputCallRequest"),
    message("StreamingInputCallResponse"),
)
OutputRequest, OutputResponse = (
    message("StreamingOutputCallRequest"),
    message("StreamingOutputCallResponse"),
)


class Stub:
    """The generated stub of the test service, made by hand."""

    def __init__(self, channel):
        send, read = SimpleRequest.SerializeToString, SimpleResponse.FromString
        self.empty = channel.unary_unary(PATH + "EmptyCall")
        self.unary = channel.unary_unary(PATH + "UnaryCall", send, read)
        send, read = OutputRequest.SerializeToString, OutputResponse.FromString
        self.output = channel.unary_stream(PATH + "StreamingOutputCall", send, read)
        self.duplex = channel.stream_stream(PATH + "FullDuplexCall", send, read)
        send, read = InputRequest.SerializeToString, InputResponse.FromString
        self.input = channel.stream_unary(PATH + "StreamingInputCall", send, read)
        self.unimplemented = channel.unary_unary(PATH + "UnimplementedCall")
        self.other = channel.unary_unary("/grpc.testing.UnimplementedService/UnimplementedCall")


@pytest.fixture(params=SERVERS)
async def stub(request):
    server = server_class(request.param)(interop_table(), ServerLimits(100, 100))
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Stub(channel)
    await server.stop(0)


def large():
    request = SimpleRequest(response_size=LARGE_RESPONSE)
    request.payload.body = bytes(LARGE_REQUEST)
    return request


def asking(*sizes, body=0):
    """Return a request for answers of some sizes."""
    request = OutputRequest()
    request.payload.body = bytes(body)
    for size in sizes:
        request.response_parameters.add(size=size)
    return request


async def code_and_details(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def test_empty_unary(stub):
    assert await stub.empty(b"", timeout=SECONDS) == b""


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "gzip"]
)
async def test_large_unary(stub, compression):
    answer = await stub.unary(large(), timeout=SECONDS, compression=compression)
    assert answer.payload.body == bytes(LARGE_RESPONSE)


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "gzip"]
)
async def test_client_streaming(stub, compression):
    call = stub.input(timeout=SECONDS, compression=compression)
    for size in REQUEST_SIZES:
        request = InputRequest()
        request.payload.body = bytes(size)
        await call.write(request)
    await call.done_writing()
    assert (await call).aggregated_payload_size == sum(REQUEST_SIZES)


async def test_server_streaming(stub):
    call = stub.output(asking(*RESPONSE_SIZES), timeout=SECONDS)
    assert [len(answer.payload.body) async for answer in call] == list(RESPONSE_SIZES)


async def test_ping_pong(stub):
    call = stub.duplex(timeout=SECONDS)
    for sent, wanted in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True):
        await call.write(asking(wanted, body=sent))
        assert len((await call.read()).payload.body) == wanted
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_empty_stream(stub):
    call = stub.duplex(timeout=SECONDS)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_timeout_on_sleeping_server(stub):
    call = stub.duplex(timeout=0.001)
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_cancel_after_begin(stub):
    call = stub.input(timeout=SECONDS)
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def test_cancel_after_first_response(stub):
    call = stub.duplex(timeout=SECONDS)
    await call.write(asking(31_415, body=27_182))
    assert len((await call.read()).payload.body) == 31_415
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("kind", ["unary", "duplex"])
async def test_custom_metadata(stub, kind):
    metadata = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
    if kind == "unary":
        call = stub.unary(large(), timeout=SECONDS, metadata=metadata)
        await call
    else:
        call = stub.duplex(timeout=SECONDS, metadata=metadata)
        await call.write(asking(LARGE_RESPONSE, body=LARGE_REQUEST))
        await call.read()
        await call.done_writing()
        await call.code()
    assert dict(await call.initial_metadata())[INITIAL] == "test_initial_metadata_value"
    assert dict(await call.trailing_metadata())[TRAILING] == b"\xab\xab\xab"


@pytest.mark.parametrize("text", ["test status message", SPECIAL], ids=["plain", "special"])
async def test_status_code_and_message(stub, text):
    request, asked = SimpleRequest(), OutputRequest()
    for one in (request, asked):
        one.response_status.code = grpc.StatusCode.UNKNOWN.value[0]
        one.response_status.message = text
    expected = (grpc.StatusCode.UNKNOWN, text)
    assert await code_and_details(stub.unary(request, timeout=SECONDS)) == expected
    call = stub.duplex(timeout=SECONDS)
    await call.write(asked)
    await call.done_writing()
    assert await code_and_details(call.read()) == expected


async def test_unimplemented_method_and_service(stub):
    for unknown in (stub.unimplemented, stub.other):
        code, _ = await code_and_details(unknown(b"", timeout=SECONDS))
        assert code is grpc.StatusCode.UNIMPLEMENTED
