"""Pass calls from the stubs of a client to the handlers of a node in the same event loop.

Requests and responses are encoded and decoded as on a network. Deadlines, cancellations, metadata
and statuses have the meaning that they have in gRPC.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from taskraft_service.api.rpc.server_context import CallEnded

Response = TypeVar("Response")
MetadataPairs = Sequence[tuple[str, str | bytes]]

MethodHandler = Callable[..., Coroutine[Any, Any, Any]]
"""Gets the request, or None for a stream of requests, and the `DirectContext`."""

LOST: Final = "the connection was lost"
LATE: Final = "Deadline Exceeded"


class Pipe:
    """Messages in transit in one direction of a stream."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._is_ended = False
        self._changed = asyncio.Event()

    def put(self, raw: bytes) -> None:
        """Add a message to the pipe."""
        self._messages.append(raw)
        self._changed.set()

    def end(self) -> None:
        """End the direction; messages in transit still arrive."""
        self._is_ended = True
        self._changed.set()

    def drop(self) -> None:
        """Drop the messages in transit, and end the direction."""
        self._messages.clear()
        self.end()

    async def get(self) -> bytes | None:
        """Return the next message; None at the end."""
        while not self._messages:
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._messages.popleft()


class DirectContext:
    """The server's side of one call; a ``ServerContext``."""

    def __init__(self, deadline: float | None, metadata: MetadataPairs) -> None:
        self.inbox = Pipe()
        self.outbox = Pipe()
        self.deadline = deadline
        self.code = grpc.StatusCode.OK
        self.details = ""
        self.initial: MetadataPairs = ()
        self.trailing: MetadataPairs = ()
        self._metadata = metadata

    def invocation_metadata(self) -> MetadataPairs:
        """Return the metadata that the client sent."""
        return self._metadata

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None without one."""
        if self.deadline is None:
            return None
        return max(self.deadline - asyncio.get_running_loop().time(), 0.0)

    def peer(self) -> str:
        """Return the address of the client."""
        return "memory"

    def auth_context(self) -> dict[str, list[bytes]]:
        """Return an empty mapping, because the client has no certificate."""
        return {}

    def set_trailing_metadata(self, metadata: MetadataPairs) -> None:
        """Set the metadata that are sent with the status."""
        self.trailing = metadata

    async def send_initial_metadata(self, metadata: MetadataPairs) -> None:
        """Send the metadata that precede the responses."""
        self.initial = metadata

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: MetadataPairs = ()
    ) -> NoReturn:
        """End the call with a status other than OK."""
        self.code, self.details, self.trailing = code, details, trailing_metadata
        raise CallEnded(details)

    async def read(self) -> bytes | None:
        """Return the client's next message; None once the client has closed its side."""
        return await self.inbox.get()

    async def write(self, raw: bytes) -> None:
        """Send a message to the client."""
        self.outbox.put(raw)


class DirectCall(Generic[Response]):
    """One call: the handler runs as an asyncio task, the client awaits or reads its responses."""

    def __init__(
        self,
        channel: DirectChannel,
        run: Callable[[DirectContext], Any],
        decode: Callable[[bytes], Response],
        timeout: float | None,
        metadata: MetadataPairs,
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self._channel = channel
        self._context = DirectContext(deadline, metadata)
        self._decode = decode
        self._run = run
        self._lost: tuple[grpc.StatusCode, str] | None = None
        self._is_cancelled = False
        self._timer: asyncio.TimerHandle | None = None
        if deadline is not None:
            self._timer = loop.call_at(deadline, self.fail, grpc.StatusCode.DEADLINE_EXCEEDED, LATE)
        channel.calls.add(self)
        self._handler = loop.create_task(self._handle())

    async def _handle(self) -> bytes | None:
        """Run the handler; return the response of a unary call."""
        try:
            if self._channel.is_dead:
                self._is_cancelled = True
                raise asyncio.CancelledError
            if self._channel.is_cut:
                self.fail(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
                return None
            answer: bytes | None = await self._run(self._context)
        except CallEnded:
            return None
        else:
            if self._channel.loses_answers:
                self.fail(grpc.StatusCode.UNAVAILABLE, LOST)
            return answer
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._channel.calls.discard(self)
            self._context.outbox.end()

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """End the call for both sides: the client gets the status, the handler is cancelled."""
        if self._handler_is_done():
            return
        self._lost = (code, details)
        self._context.outbox.drop()
        self._context.inbox.drop()
        if asyncio.current_task() is not self._handler:
            self._handler.cancel()

    def _handler_is_done(self) -> bool:
        return self._lost is not None or self._handler.done()

    def cancel(self) -> bool:
        """Cancel the call as a client does."""
        if self._handler_is_done():
            return False
        self._is_cancelled = True
        self._handler.cancel()
        self._context.outbox.drop()
        return True

    def _status(self) -> grpc.aio.AioRpcError | None:
        """Return the error of the call; None: its status is OK."""
        context = self._context
        if self._lost is not None:
            empty = grpc.aio.Metadata()
            return grpc.aio.AioRpcError(self._lost[0], empty, empty, self._lost[1])
        if context.code is grpc.StatusCode.OK:
            return None
        initial, trailing = _metadata(context.initial), _metadata(context.trailing)
        return grpc.aio.AioRpcError(context.code, initial, trailing, context.details)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the metadata that preceded the responses."""
        return _metadata(self._context.initial)

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the metadata of the status."""
        return _metadata(self._context.trailing)

    # ------------------------------------------------------------------------------ unary

    def __await__(self) -> Generator[Any, None, Response]:
        return self._response().__await__()

    async def _response(self) -> Response:
        try:
            answer = await self._handler
        except asyncio.CancelledError:
            if self._lost is None:
                raise
            answer = None
        error = self._status()
        if error is not None:
            raise error
        if answer is None:  # the handler wrote its answer
            answer = await self._context.outbox.get()
        assert answer is not None, "a unary call without an error has an answer"
        return self._decode(answer)

    # ------------------------------------------------------------------------------ streams

    async def read(self) -> Response | object:
        """Return the next response; ``EOF`` at the end."""
        raw = await self._context.outbox.get()
        if raw is not None:
            return self._decode(raw)
        if self._is_cancelled:
            raise asyncio.CancelledError
        error = self._status()
        if error is not None:
            raise error
        if self._handler.done() and not self._handler.cancelled():
            self._handler.result()
        return grpc.aio.EOF

    async def __aiter__(self) -> AsyncIterator[Response]:
        while (response := await self.read()) is not grpc.aio.EOF:
            yield cast("Response", response)

    async def write(self, request: Message) -> None:
        """Send a message to the handler."""
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._handler_is_done():
            raise self._status() or asyncio.InvalidStateError("the call has ended")
        self._context.inbox.put(request.SerializeToString())


class DirectChannel:
    """Has the part of ``grpc.aio.Channel`` that the stubs and the Python client use.

    Args:
        handlers: the handlers of the node, by the full names of their methods.
    """

    def __init__(self, handlers: Mapping[str, MethodHandler]) -> None:
        self._handlers = handlers
        self.calls: set[DirectCall[Any]] = set()
        """The calls in progress."""
        self.is_cut = False
        """Whether the node is unreachable on this channel."""
        self.loses_answers = False
        """Whether the node executes calls and the answers are lost."""
        self.is_dead = False
        """Whether the process of the client has died."""

    def cut(self) -> None:
        """End all calls as a lost connection does; later calls fail until ``restore``."""
        self.is_cut = True
        self.end_calls()

    def die(self) -> None:
        """Cancel all calls of the client, and end them at the node as if the client had died.

        A cancellation ends the coroutines of the client, which handle other errors.
        """
        self.is_dead = True
        for call in list(self.calls):
            call.cancel()

    def end_calls(self) -> None:
        """End all calls as a lost connection does; later calls open a new connection."""
        for call in list(self.calls):
            call.fail(grpc.StatusCode.UNAVAILABLE, LOST)

    def restore(self) -> None:
        """Let calls reach the node again."""
        self.is_cut = False

    # ------------------------------------------------------------------------------ Channel

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Message], bytes],
        response_deserializer: Callable[[bytes], Response],
        **_: object,
    ) -> Callable[..., DirectCall[Response]]:
        """Return a function that starts calls with one request; `DirectCall` reads any answers."""
        handle = self._handlers[method]

        def start(
            request: Message, *, timeout: float | None = None, metadata: MetadataPairs = ()
        ) -> DirectCall[Response]:
            run = partial(handle, request_serializer(request))
            return DirectCall(self, run, response_deserializer, timeout, metadata)

        return start

    unary_stream = unary_unary

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Message], bytes],
        response_deserializer: Callable[[bytes], Response],
        **_: object,
    ) -> Callable[..., DirectCall[Response]]:
        """Return a function that starts calls with streams in both directions."""
        del request_serializer
        handle = self._handlers[method]

        def start(
            *, timeout: float | None = None, metadata: MetadataPairs = ()
        ) -> DirectCall[Response]:
            run = partial(handle, None)
            return DirectCall(self, run, response_deserializer, timeout, metadata)

        return start

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 - the signature of gRPC
        """Return that the channel is connected."""
        del try_to_connect
        return grpc.ChannelConnectivity.READY

    async def close(self, grace: float | None = None) -> None:
        """End all calls."""
        del grace
        self.end_calls()


def _metadata(pairs: MetadataPairs) -> grpc.aio.Metadata:
    return grpc.aio.Metadata(*pairs)
