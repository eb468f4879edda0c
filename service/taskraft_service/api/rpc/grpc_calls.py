"""Adapt the calls of grpc.aio: their handlers, message streams, deadlines and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn, TypeAlias, cast

import grpc
import grpc.aio

from taskraft_service.access.authenticator import Authenticator
from taskraft_service.api.rpc.status import PUSHBACK_KEY, STATUS_KEY, message_too_large
from taskraft_service.limits import MESSAGE_BYTES_MAX

ServicerContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


class GrpcMessageStream:
    """A ``MessageStream`` over the context of a grpc.aio call."""

    __slots__ = ("_context", "write")

    def __init__(self, context: ServicerContext) -> None:
        self._context = context
        # An attribute instead of a method saves a coroutine for each message.
        self.write: Callable[[bytes], Awaitable[None]] = context.write

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """See ``MessageStream``."""
        return dict(self._context.invocation_metadata() or ())

    @property
    def deadline(self) -> float | None:
        """See ``MessageStream``."""
        # The type stubs declare float, but a call without a deadline has None.
        left = cast("float | None", self._context.time_remaining())
        return None if left is None else asyncio.get_running_loop().time() + left

    async def read(self) -> bytes | None:
        """See ``MessageStream``."""
        raw: object = await self._context.read()
        if not isinstance(raw, bytes):
            return None
        if len(raw) > MESSAGE_BYTES_MAX:
            raise message_too_large(raw)
        return raw


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
UnaryHandle: TypeAlias = Callable[[bytes, ServicerContext], Awaitable[bytes | None]]
"""Serves a received message; returns the answer, or None if all answers are written already."""
Refusal: TypeAlias = Callable[[str, ServicerContext, Exception], Awaitable[NoReturn]]
"""Ends a call of a path with the status of an error."""


class GuardedHandlers(grpc.GenericRpcHandler):
    """The handlers of a service; a caller without a valid token must authenticate first.

    grpc.aio receives the whole message of a unary call before it starts the handler. A caller
    without credentials could therefore make a node hold 64 MiB for each half-sent message, without
    a time limit. A stream handler decides itself when a message is received. So a unary call
    without a valid token is served as a stream: authentication first, then the message. Both look
    the same on the wire.

    Args:
        handlers: the handlers by path, for callers with a valid token.
        guarded: the handlers by path, for other callers. They authenticate before they receive a
            message.
        authenticator: returns whether the call has a valid token.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        guarded: Mapping[str, Handler],
        authenticator: Authenticator,
    ) -> None:
        self._handlers: Final = handlers
        self._guarded: Final = guarded
        self._authenticator: Final = authenticator

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """See ``grpc.GenericRpcHandler``."""
        path = str(details.method)
        if self._authenticator.has_valid_token(details.invocation_metadata):
            return self._handlers.get(path)
        return self._guarded.get(path)


def guard(path: str, handle: UnaryHandle, authenticator: Authenticator, refuse: Refusal) -> Handler:
    """Return a handler that authenticates the caller, receives one message and serves it.

    Args:
        path: full name of the method.
        handle: serves the message.
        authenticator: authenticates the caller.
        refuse: ends a call without credentials.
    """

    async def serve(_requests: object, context: ServicerContext) -> None:
        try:
            authenticator.authenticate(context)
        except Exception as error:  # noqa: BLE001 - every error gets a status
            await refuse(path, context, error)
        raw: object = await context.read()
        if not isinstance(raw, bytes):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        answer = await handle(raw, context)
        if answer is not None:
            await context.write(answer)

    return grpc.stream_stream_rpc_method_handler(serve)
