"""Forward the calls of one turn of the event loop in one message to the leader.

A gRPC call costs each node more than 100 us. A burst of small puts that arrives at a follower
therefore shares one ForwardCalls. Each call keeps its own deadline, cancellation and error. The
leader says which calls it did not begin. These calls had no effect, and the forwarder sends each of
them alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final
from weakref import WeakKeyDictionary

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from taskraft_replication.background import Background
from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.calls_at_leader import CancellableCall
from taskraft_service.api.rpc.forwarding_metadata import forwarding_metadata
from taskraft_service.api.rpc.list_maxima import FORWARDED_CALLS_MAX, SHORT_REQUEST_BYTES
from taskraft_service.api.rpc.status import PUSHBACK_KEY, STATUS_KEY
from taskraft_service.stubs.forwarding.v1 import forwarding_pb2 as pb

FORWARD_CALLS_PATH: Final = "/taskraft.forwarding.v1.ForwardingService/ForwardCalls"
FORWARDED_BYTES_MAX: Final = 64 * 1024
"""Maximum size of the requests of the calls in one message."""
WITHOUT_METHOD_SECONDS: Final = 60.0
"""Time for which each call is sent alone to a node that does not have the method: a node of an
older release, or a node with authentication or traces."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_NO_METADATA: Final = grpc.aio.Metadata()


class NotBegun(Exception):
    """The call was not begun at the leader and had no effect; send the call alone."""


@dataclass(slots=True, frozen=True, eq=False)
class _Call:
    """A call that waits for its answer."""

    method: str
    raw: bytes
    deadline: float | None
    answer: asyncio.Future[bytes]


class SharedCalls:
    """Collects the calls of one turn of the event loop for each channel.

    Attributes:
        messages: messages sent since the process started.
    """

    def __init__(self) -> None:
        self._waiting: dict[grpc.aio.Channel, list[_Call]] = {}
        self._running = Background()
        self._without_method: WeakKeyDictionary[grpc.aio.Channel, float] = WeakKeyDictionary()
        """The channels to nodes without the method, each with the time at which to try again."""
        self._sent: set[_Call] = set()
        """The calls in messages without an answer."""
        self.messages = 0

    def may_share(self, channel: grpc.aio.Channel, raw: bytes) -> bool:
        """Return whether a call may share a message to the node of a channel."""
        again_at = self._without_method.get(channel)
        if again_at is not None and asyncio.get_running_loop().time() < again_at:
            return False
        return len(raw) <= SHORT_REQUEST_BYTES

    def start(
        self, channel: grpc.aio.Channel, method: str, raw: bytes, deadline: float | None
    ) -> asyncio.Future[bytes]:
        """Send an anonymous call with the other calls of this turn; return its future answer.

        To cancel the future is to cancel the call. The future fails with ``NotBegun``, or with the
        ``AioRpcError`` with which a call that is sent alone would fail.

        Args:
            channel: the channel to the leader.
            method: the full name of the method.
            raw: the request.
            deadline: the deadline of the call, as a time of the event loop.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)
        answer: asyncio.Future[bytes] = loop.create_future()
        call = _Call(method, raw, deadline, answer)
        self._waiting.setdefault(channel, []).append(call)
        return answer

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for channel, calls in waiting.items():
            for some in _messages([call for call in calls if not call.answer.done()]):
                if len(some) == 1:
                    # A message with one call would only cost the leader more.
                    some[0].answer.set_exception(NotBegun())
                else:
                    self._sent.update(some)
                    self._running.start(self._exchange(channel, some))

    async def _exchange(self, channel: grpc.aio.Channel, calls: Sequence[_Call]) -> None:
        """Send calls, and give each call its outcome."""
        self.messages += 1
        loop = asyncio.get_running_loop()
        start: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            FORWARD_CALLS_PATH
        )
        sent = start(_request(calls, loop.time()), metadata=forwarding_metadata(ANONYMOUS, ()))
        timers = _watch(calls, sent)
        try:
            _deliver(calls, await sent)
        except grpc.aio.AioRpcError as error:
            has_no_method = error.code() is grpc.StatusCode.UNIMPLEMENTED
            if has_no_method:
                self._without_method[channel] = loop.time() + WITHOUT_METHOD_SECONDS
            for call in calls:
                _fail(call, NotBegun() if has_no_method else _copy(error))
        except asyncio.CancelledError:
            if not all(call.answer.done() for call in calls):
                raise
        finally:
            self._sent.difference_update(calls)
            for timer in timers:
                timer.cancel()
            for call in calls:
                call.answer.cancel()  # without effect on a call with an outcome

    async def close(self) -> None:
        """Cancel the calls without an answer."""
        calls = [*chain.from_iterable(self._waiting.values()), *self._sent]
        self._waiting = {}
        for call in calls:
            call.answer.cancel()
        self._running.cancel()
        await self._running.ended()


def _messages(calls: Sequence[_Call]) -> Iterator[Sequence[_Call]]:
    """Divide calls into messages that the leader accepts."""
    some: list[_Call] = []
    size = 0
    for call in calls:
        size += len(call.raw)
        if some and (len(some) == FORWARDED_CALLS_MAX or size > FORWARDED_BYTES_MAX):
            yield some
            some, size = [], len(call.raw)
        some.append(call)
    if some:
        yield some


def _watch(calls: Sequence[_Call], sent: CancellableCall) -> Sequence[asyncio.TimerHandle]:
    """End each call at its deadline, and cancel the message once no call needs its answer."""
    loop = asyncio.get_running_loop()
    open_calls = len(calls)

    def ended(_answer: asyncio.Future[bytes]) -> None:
        nonlocal open_calls
        open_calls -= 1
        if not open_calls:
            sent.cancel()  # without effect on a message with an answer

    for call in calls:
        call.answer.add_done_callback(ended)
    return [
        loop.call_at(call.deadline, _fail, call, _deadline_exceeded())
        for call in calls
        if call.deadline is not None
    ]


def _request(calls: Sequence[_Call], now: float) -> bytes:
    request = pb.ForwardCallsRequest()
    for call in calls:
        one = request.calls.add(method=call.method, request=call.raw)
        if call.deadline is not None:
            one.remaining_ms = max(int((call.deadline - now) * 1000), 0)
    return request.SerializeToString()


def _deliver(calls: Sequence[_Call], raw: bytes) -> None:
    """Give each call the outcome that the leader has sent."""
    try:
        outcomes: Sequence[pb.ForwardedOutcome] = pb.ForwardCallsResponse.FromString(raw).outcomes
    except DecodeError:
        outcomes = ()
    if len(outcomes) != len(calls):
        for call in calls:
            _fail(call, _error(grpc.StatusCode.INTERNAL, "the leader's outcomes are not valid"))
        return
    for call, outcome in zip(calls, outcomes, strict=True):
        result = outcome.WhichOneof("result")
        if call.answer.done():
            continue
        if result == "answer":
            call.answer.set_result(outcome.answer)
        elif result == "status":
            call.answer.set_exception(_error_of(outcome.status))
        else:
            call.answer.set_exception(NotBegun())


def _error_of(status: pb.ForwardedStatus) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata()
    if status.details:
        metadata.add(STATUS_KEY, status.details)
    if status.pushback:
        metadata.add(PUSHBACK_KEY, status.pushback)
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return grpc.aio.AioRpcError(code, _NO_METADATA, metadata, status.message)


def _fail(call: _Call, error: Exception) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)


def _copy(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return an equal error; the calls must not share one, because each sets its traceback."""
    return grpc.aio.AioRpcError(
        error.code(), error.initial_metadata(), error.trailing_metadata(), error.details()
    )


def _error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, _NO_METADATA, _NO_METADATA, text)


def _deadline_exceeded() -> grpc.aio.AioRpcError:
    return _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
