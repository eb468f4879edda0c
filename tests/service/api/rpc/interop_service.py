"""The test service of gRPC's interoperability tests, as a table of methods for an ``RpcServer``."""

import grpc

from taskraft_service.api.rpc.method_table import CallKind, ServedMethod, guard
from tests.service.api.rpc.interop_messages import message

PATH = "/grpc.testing.TestService/"
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
"""Metadata that the service sends back, before the messages and after them."""

SimpleRequest = message("SimpleRequest")
SimpleResponse = message("SimpleResponse")
InputRequest = message("StreamingInputCallRequest")
InputResponse = message("StreamingInputCallResponse")
OutputRequest = message("StreamingOutputCallRequest")
OutputResponse = message("StreamingOutputCallResponse")


def _status(code):
    return next(one for one in grpc.StatusCode if one.value[0] == code)


async def _echo_metadata(context):
    sent = dict(context.invocation_metadata())
    if INITIAL in sent:
        await context.send_initial_metadata(((INITIAL, sent[INITIAL]),))
    if TRAILING in sent:
        context.set_trailing_metadata(((TRAILING, sent[TRAILING]),))


async def _empty(raw, _context):
    assert not raw
    return b""


async def _unary(raw, context):
    await _echo_metadata(context)
    request = SimpleRequest.FromString(raw)
    if request.HasField("response_status"):
        wanted = request.response_status
        await context.abort(_status(wanted.code), wanted.message)
    answer = SimpleResponse()
    answer.payload.body = bytes(request.response_size)
    return answer.SerializeToString()


async def _send(request, context):
    """Write the answers that a request asks for."""
    if request.HasField("response_status"):
        wanted = request.response_status
        await context.abort(_status(wanted.code), wanted.message)
    for one in request.response_parameters:
        answer = OutputResponse()
        answer.payload.body = bytes(one.size)
        await context.write(answer.SerializeToString())


async def _output(raw, context):
    await _echo_metadata(context)
    await _send(OutputRequest.FromString(raw), context)


async def _input(_requests, context):
    size = 0
    while isinstance(raw := await context.read(), bytes):
        size += len(InputRequest.FromString(raw).payload.body)
    await context.write(InputResponse(aggregated_payload_size=size).SerializeToString())


async def _duplex(_requests, context):
    await _echo_metadata(context)
    while isinstance(raw := await context.read(), bytes):
        await _send(OutputRequest.FromString(raw), context)


class _Open:
    def authenticate(self, _context):
        return None

    def has_valid_token(self, _metadata):
        return True


async def _refuse(_path, _context, error):
    raise error


def interop_table():
    """Return the methods of the service; ``UnimplementedCall`` is missing on purpose."""

    def one(kind, handle):
        if kind is CallKind.BIDIRECTIONAL:
            return ServedMethod(kind, handle, handle)
        return ServedMethod(kind, handle, guard("", handle, _Open(), _refuse), _Open())

    return {
        PATH + "EmptyCall": one(CallKind.UNARY, _empty),
        PATH + "UnaryCall": one(CallKind.UNARY, _unary),
        PATH + "StreamingOutputCall": one(CallKind.SERVER_STREAMING, _output),
        PATH + "StreamingInputCall": one(CallKind.BIDIRECTIONAL, _input),
        PATH + "FullDuplexCall": one(CallKind.BIDIRECTIONAL, _duplex),
    }
