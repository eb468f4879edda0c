"""Describe the methods of a node as a table of coroutines, which any gRPC server can serve.

The coroutines know a call only as a ``ServerContext``. ``grpc_server`` serves the table on
grpc.aio, and the memory node calls the coroutines directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import grpc

from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR, Authenticator
from taskraft_service.api.rpc.server_context import ServerContext

if TYPE_CHECKING:
    from taskraft_service.api.rpc.prompt_calls import PromptMethod

UnaryHandle: TypeAlias = Callable[[bytes, ServerContext], Coroutine[Any, Any, bytes | None]]
"""Serves a received message; returns the answer, or None if all answers are written already."""
StreamHandle: TypeAlias = Callable[[object, ServerContext], Coroutine[Any, Any, None]]
"""Serves a call whose messages the coroutine reads itself; the first argument is not used."""
Refusal: TypeAlias = Callable[[str, ServerContext, Exception], Awaitable[NoReturn]]
"""Ends a call of a path with the status of an error."""


class CallKind(Enum):
    """The number of messages of a call."""

    UNARY = 0
    """One request and one answer."""
    SERVER_STREAMING = 1
    """One request and any number of answers."""
    BIDIRECTIONAL = 2
    """Any number of requests and of answers."""
    WRITTEN_ANSWER = 3
    """One request and one answer, which the handler returns or writes. ``write`` returns once the
    answer was handed to the connection, and fails if the client has ended the call before."""


@dataclass(slots=True, frozen=True)
class ServedMethod:
    """One method: how many messages its calls have, and the coroutines that serve a call.

    A server receives the whole request of a call before it starts ``handle``. A caller without
    credentials could therefore make a node hold 64 MiB for each half-sent request. ``guarded``
    authenticates the caller first, and then reads the request itself.
    """

    kind: CallKind
    handle: UnaryHandle | StreamHandle
    """Serves a call whose request is received; of a bidirectional call, serves the whole call."""
    guarded: StreamHandle
    """Serves a call whose request is not received yet. Both coroutines look the same to clients."""
    authenticator: Authenticator = OPEN_AUTHENTICATOR
    """Decides which calls may send their request before they are authenticated."""
    prompt: PromptMethod | None = None
    """Begins calls without a coroutine, if the server can do that; ``handle`` serves the others."""


MethodTable: TypeAlias = Mapping[str, ServedMethod]
"""The methods of a node by path, for example "/taskraft.v1.TaskService/PutTasks"."""


def guard(
    path: str, handle: UnaryHandle, authenticator: Authenticator, refuse: Refusal
) -> StreamHandle:
    """Return a coroutine that authenticates the caller, receives one message and serves it.

    Args:
        path: full name of the method.
        handle: serves the message.
        authenticator: authenticates the caller.
        refuse: ends a call without credentials.
    """

    async def serve(_requests: object, context: ServerContext) -> None:
        try:
            authenticator.authenticate(context)
        except Exception as error:  # noqa: BLE001 - every error gets a status
            await refuse(path, context, error)
        raw = await context.read()
        if not isinstance(raw, bytes):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        answer = await handle(raw, context)
        if answer is not None:
            await context.write(answer)

    return serve
