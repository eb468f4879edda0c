"""Put services of libraries, such as health and reflection, into a table of methods.

A servicer of a library exchanges protobuf messages, and a table exchanges bytes. The services need
no credentials.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES
from taskraft_service.api.rpc.method_table import CallKind, ServedMethod, UnaryHandle, guard
from taskraft_service.api.rpc.server_context import ServerContext

Request = TypeVar("Request", bound=Message)


class MessageContext:
    """The part of a call context that servicers of libraries use; sends protobuf messages."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def write(self, message: Message) -> None:
        """Send a message; returns when flow control accepts the next one."""
        await self._context.write(message.SerializeToString())

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the call with a status other than OK."""
        await self._context.abort(code, details)


def unary(
    path: str,
    request: type[Request],
    serve: Callable[[Request, Any], Awaitable[Message]],
) -> ServedMethod:
    """Return a method with one request and one answer.

    Args:
        path: path of the method.
        request: type of the request.
        serve: method of the servicer; the second argument is a ``MessageContext``, which has
            the part of the library's own context that the method uses.
    """

    async def handle(raw: bytes, context: ServerContext) -> bytes:
        answer = await serve(await _parsed(request, raw, context), MessageContext(context))
        return answer.SerializeToString()

    return _open(path, CallKind.UNARY, handle)


def server_streaming(
    path: str,
    request: type[Request],
    serve: Callable[[Request, Any], Awaitable[None]],
) -> ServedMethod:
    """Return a method with one request, which writes its answers to the context; see ``unary``."""

    async def handle(raw: bytes, context: ServerContext) -> None:
        await serve(await _parsed(request, raw, context), MessageContext(context))

    return _open(path, CallKind.SERVER_STREAMING, handle)


def bidirectional(
    request: type[Request],
    serve: Callable[[AsyncIterator[Request], Any], AsyncIterable[Message]],
) -> ServedMethod:
    """Return a method that reads an iterator of requests and yields answers; see ``unary``."""

    async def requests(context: ServerContext) -> AsyncIterator[Request]:
        while isinstance(raw := await context.read(), bytes):
            yield await _parsed(request, raw, context)

    async def handle(_requests: object, context: ServerContext) -> None:
        async for answer in serve(requests(context), MessageContext(context)):
            await context.write(answer.SerializeToString())

    return ServedMethod(CallKind.BIDIRECTIONAL, handle, handle)


def _open(path: str, kind: CallKind, handle: UnaryHandle) -> ServedMethod:
    return ServedMethod(kind, handle, guard(path, handle, OPEN_AUTHENTICATOR, _refuse))


async def _refuse(_path: str, _context: ServerContext, error: Exception) -> NoReturn:
    raise error


async def _parsed(request: type[Request], raw: bytes, context: ServerContext) -> Request:
    """Return the parsed request; end a call whose request is malformed or long."""
    if len(raw) > LONG_REQUEST_BYTES:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is too long")
    try:
        return request.FromString(raw)
    except DecodeError:
        name = request.DESCRIPTOR.full_name
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request is not a valid {name}")
