"""Adapt the calls of gRPC: their handlers, message streams, deadlines and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from taskraft.v1 import error_pb2
from taskraft_service.access.authenticator import Authenticator
from taskraft_service.api.rpc.message_fields import LONG_REQUEST_BYTES, begin_long_message
from taskraft_service.api.rpc.method_table import CallKind, MethodTable, UnaryHandle
from taskraft_service.api.rpc.server_context import ServerContext
from taskraft_service.api.rpc.status import (
    PUSHBACK_KEY,
    STATUS_KEY,
    CallRefused,
)

FIRST_MESSAGE_SECONDS: Final = 10.0
"""Maximum time between the start of a call and its first message."""

ClientGone: TypeAlias = grpc.aio.InternalError
"""grpc.aio raises this error in a write to a client that has gone, before the cancellation of the
handler arrives. The native edge cancels the handler at once."""


class GrpcMessageStream:
    """A ``MessageStream`` over the context of a call.

    Args:
        context: the call.
        kind: type of the messages that the client sends.
        first_came: called with the first message that the client sends.
    """

    __slots__ = ("_context", "_first_came", "_kind", "_next_message_bytes", "write")

    def __init__(
        self,
        context: ServerContext,
        kind: type[Message],
        first_came: Callable[[bytes], None] | None = None,
    ) -> None:
        self._context = context
        self._kind = kind
        self._first_came = first_came
        self._next_message_bytes: Callable[[], int] | None = getattr(
            context, "next_message_bytes", None
        )
        # An attribute instead of a method saves a coroutine for each message.
        self.write: Callable[[bytes], Awaitable[None]] = context.write

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """The metadata that the client sent with the call."""
        return dict(self._context.invocation_metadata() or ())

    @property
    def deadline(self) -> float | None:
        """The deadline of the call, as a time of the event loop; None if the client set none."""
        left = self._context.time_remaining()
        return None if left is None else asyncio.get_running_loop().time() + left

    @property
    def has_arrived(self) -> bool:
        """Return whether ``read`` returns the next message without waiting.

        Only the native edge can tell. A long message is received in several turns of the event
        loop, so a wait comes before it.
        """
        next_bytes = self._next_message_bytes
        return next_bytes is not None and 0 <= next_bytes() <= LONG_REQUEST_BYTES

    async def read(self) -> bytes | None:
        """Return the client's next message; None once the client has closed its side.

        Raises:
            CallRefused: PAYLOAD_TOO_LARGE; TOO_MANY_STEPS, the message has too many fields; or
                CLIENT_SILENT, the first message did not arrive within ``FIRST_MESSAGE_SECONDS``.
        """
        first_came = self._first_came
        raw = await (self._context.read() if first_came is None else first_message(self._context))
        if not isinstance(raw, bytes):
            return None
        if len(raw) > LONG_REQUEST_BYTES:
            await begin_long_message(raw, self._kind)
        if first_came is not None:
            self._first_came = None
            first_came(raw)
        return raw


async def first_message(context: ServerContext) -> object:
    """Return the first message of a call, as ``ServerContext.read`` does.

    Raises:
        CallRefused: CLIENT_SILENT, no message arrived within ``FIRST_MESSAGE_SECONDS``.
    """
    try:
        async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
            return await context.read()
    except TimeoutError:
        raise CallRefused(
            error_pb2.Error.CLIENT_SILENT,
            f"the client sent no first message within {FIRST_MESSAGE_SECONDS:g} s; send it when "
            "the call is opened",
            {"limit": "first_message_ms", "value": str(int(FIRST_MESSAGE_SECONDS * 1000))},
        ) from None


class LeaderAnsweredError(Exception):
    """The leader answered a forwarded call with an error, which this node relays to the client.

    Attributes:
        code: the gRPC status code.
        message: the text of the status.
        metadata: the trailing metadata with the details of the status.
    """

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(error.details() or "")
        self.code = error.code()
        self.message = error.details() or ""
        self.metadata = tuple(
            (key, value)
            for key, value in error.trailing_metadata() or ()
            if key in (STATUS_KEY, PUSHBACK_KEY)
        )

    @property
    def may_retry(self) -> bool:
        """Return whether the same call may succeed later."""
        is_unavailable = self.code is grpc.StatusCode.UNAVAILABLE
        return is_unavailable or any(key == PUSHBACK_KEY for key, _ in self.metadata)


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and of its causes.

    An error and the frames of its traceback refer to each other, so the request and its command
    would stay in memory until the garbage collector runs: after refused puts of 1 MiB, a node kept
    3 MiB for each of them.
    """
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"


def _written_answer(handle: UnaryHandle) -> Handler:
    """Return the handler of a call whose answer ``handle`` returns or writes."""

    async def serve(raw: bytes, context: ServerContext) -> None:
        answering = handle(raw, context)
        del raw  # the context keeps the traceback of an error, which refers to this frame
        answer = await answering
        if answer is not None:
            # grpc.aio ignores what the handler of a stream returns.
            await context.write(answer)

    return grpc.unary_stream_rpc_method_handler(serve)


_FACTORIES: Final[Mapping[CallKind, Callable[[Any], Handler]]] = {
    CallKind.UNARY: grpc.unary_unary_rpc_method_handler,
    CallKind.SERVER_STREAMING: grpc.unary_stream_rpc_method_handler,
    CallKind.BIDIRECTIONAL: grpc.stream_stream_rpc_method_handler,
    CallKind.WRITTEN_ANSWER: _written_answer,
}


class TableHandlers(grpc.GenericRpcHandler):
    """Serves a table of methods; a caller without a valid token must authenticate first.

    grpc.aio receives the whole message of a unary call before it starts the handler. A stream
    handler decides itself when a message is received. So a unary call without a valid token is
    served as a stream: authentication first, then the message.
    """

    def __init__(self, table: MethodTable) -> None:
        self._methods: Final[dict[str, tuple[Authenticator, Handler, Handler]]] = {
            path: (
                method.authenticator,
                _FACTORIES[method.kind](method.handle),
                grpc.stream_stream_rpc_method_handler(method.guarded),
            )
            for path, method in table.items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Return the handler of a method; a call without a valid token gets a guarded handler."""
        found = self._methods.get(str(details.method))
        if found is None:
            return None
        authenticator, handler, guarded = found
        return handler if authenticator.has_valid_token(details.invocation_metadata) else guarded
