"""Wrap gRPC handlers of other packages, so that each call is reported."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final, TypeAlias

import grpc
from grpc import aio

Context: TypeAlias = "aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"

_BUILDERS: Final = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class ReportedCalls(grpc.GenericRpcHandler):
    """gRPC handlers that report each call on arrival.

    Args:
        handlers: the handlers; all must be coroutine functions.
        arrived: called with the address of each caller.
    """

    def __init__(self, handlers: grpc.GenericRpcHandler, arrived: Callable[[str], None]) -> None:
        self._handlers = handlers
        self._arrived = arrived
        self._reported: dict[str, Handler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Return a handler that reports the arrival of each call; None for an unknown method."""
        method = str(details.method)
        if method not in self._reported:
            handler = self._handlers.service(details)
            if handler is None:
                return None
            self._reported[method] = self._with_report(handler)
        return self._reported[method]

    def _with_report(self, handler: Handler) -> Handler:
        (kind,) = [kind for kind in _BUILDERS if getattr(handler, kind) is not None]
        behaviour = getattr(handler, kind)
        assert inspect.iscoroutinefunction(behaviour), "only coroutine handlers are supported"

        async def report(request: object, context: Context) -> object:
            self._arrived(context.peer())
            return await behaviour(request, context)

        build: Callable[..., Handler] = _BUILDERS[kind]
        return build(report, handler.request_deserializer, handler.response_serializer)
