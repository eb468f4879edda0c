"""Record the calls that reach a node in memory; refuse, delay or lose calls on request."""

import asyncio
from collections import defaultdict, deque
from functools import partial
from typing import NamedTuple

import grpc
from google.protobuf import descriptor_pool, message_factory

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.clients.refusals import COMMIT_UNKNOWN, Refusal


class Call(NamedTuple):
    """A request, or the beginning or a message of a stream, that reached a node."""

    method: str
    node: int
    request: object


def method_of(path):
    """Return the descriptor of a method from its full name."""
    service, _, method = path.removeprefix("/").partition("/")
    return descriptor_pool.Default().FindServiceByName(service).FindMethodByName(method)


class NodeCalls:
    """The calls of a node, or of several nodes with one queue.

    The messages of subscriptions are calls with the names `StreamOpen` and `StreamMessage`. The
    faults of their settlements have the name `StreamSettle`.
    """

    def __init__(self):
        self.calls = []
        """All calls, in order."""
        self.streams = []
        """The open subscriptions."""
        self.edit_heartbeat = lambda _: None
        """Called with each heartbeat of a subscription before the client gets it."""
        self.loses = frozenset()
        """Names of the fields of subscription answers that do not arrive."""
        self.ignores = frozenset()
        """Names of the fields of messages on subscriptions that do not reach the node."""
        self._faults = defaultdict(deque)
        self._gates = {}

    def record(self, handlers):
        """Replace the handlers of a memory node by handlers that record."""
        for path, inner in handlers.items():
            handlers[path] = partial(self._handle, path, inner)

    def requests(self, method):
        """Return the requests of a method."""
        return [call.request for call in self.calls if call.method == method]

    def asked(self, method):
        """Return the numbers of the nodes that got the calls of a method."""
        return [call.node for call in self.calls if call.method == method]

    def refuse(self, method, reason, code=grpc.StatusCode.UNAVAILABLE, times=1, **details):
        """Refuse the next calls of a method before they have an effect."""
        self._faults[method].extend([(Refusal(reason, code, **details), False)] * times)

    def lose_answer(self, method, times=1):
        """Execute the next calls of a method and answer that the outcome is unknown."""
        self._faults[method].extend([(COMMIT_UNKNOWN, True)] * times)

    def accept(self, method):
        """Cancel the faults of a method."""
        self._faults[method].clear()

    def hold(self, method):
        """Delay the calls of a method until `let_go`."""
        self._gates[method] = asyncio.Event()

    def let_go(self, method):
        """Continue the delayed calls of a method, in the event loop of the node."""
        self._gates.pop(method).set()

    def next_fault(self, method):
        """Return a refusal, or None, and whether the call has its effect before it."""
        return self._faults[method].popleft() if self._faults[method] else (None, False)

    def follower_refusal(self, node):
        """Return the refusal of a node that does not lead; None: the call is executed."""
        return

    async def _handle(self, path, inner, raw, context):
        method, node = path.rpartition("/")[2], getattr(context, "node", 0)
        if method_of(path).client_streaming:
            self.calls.append(Call(method, node, None))
            await Subscription(self, node, context).run(inner)
            return None
        request = message_factory.GetMessageClass(method_of(path).input_type).FromString(raw)
        self.calls.append(Call(method, node, request))
        refusal, is_after = self.next_fault(method)
        refusal = refusal or self.follower_refusal(node)
        if method in self._gates:
            await self._gates[method].wait()
        answer = None
        if refusal is None or is_after:
            answer = await inner(raw, context)
        if refusal is not None:
            status = refusal.status()
            await context.abort(status.code, status.details, status.trailing_metadata)
        return answer


class Subscription:
    """One stream of tasks between a node and a client, with faults; a `ServerContext`."""

    def __init__(self, calls, node, context):
        self._calls = calls
        self.node = node
        self._context = context
        self._writing = asyncio.Lock()
        self._lost_settlements = set()
        self._is_opened = False
        self._end = asyncio.get_running_loop().create_future()

    def __getattr__(self, name):
        return getattr(self._context, name)

    async def run(self, inner):
        """Run the handler of the node until the stream ends or breaks."""
        self._calls.streams.append(self)
        serving = asyncio.ensure_future(inner(None, self))
        try:
            await asyncio.wait({serving, self._end}, return_when=asyncio.FIRST_COMPLETED)
            if not self._end.done():
                return await serving
        finally:
            self._calls.streams.remove(self)
            serving.cancel()
            await asyncio.wait({serving})
        if self._end.result() is not None:
            await self._context.abort(self._end.result(), "the answer is lost")
        return None

    async def go_away(self, reason, leader="", retry_ms=0):
        """End the stream with a reason."""
        error = error_pb2.Error(reason=error_pb2.Error.Reason.Value(reason))
        go_away = pb.SubscribeResponse.GoAway(error=error, leader=leader, retry_ms=retry_ms)
        await self._send(pb.SubscribeResponse(go_away=go_away))
        self._finish(None)

    def _finish(self, code):
        if not self._end.done():
            self._end.set_result(code)

    async def _send(self, response):
        """Write a message; gRPC allows one write at a time."""
        async with self._writing:
            await self._context.write(response.SerializeToString())

    async def read(self):
        """Return the next message of the client that the node gets."""
        while isinstance(raw := await self._context.read(), bytes):
            message = pb.SubscribeRequest.FromString(raw)
            self._calls.calls.append(
                Call("StreamMessage" if self._is_opened else "StreamOpen", self.node, message)
            )
            if not self._is_opened:
                self._is_opened = True
                if refusal := self._calls.follower_refusal(self.node):
                    await self.go_away(refusal.reason, refusal.metadata["leader"])
            if not message.settlements or not await self._is_refused(message):
                for field in self._calls.ignores:
                    message.ClearField(field)
                return message.SerializeToString()
        return raw

    async def _is_refused(self, message):
        """Answer a message of settlements if it is refused."""
        refusal, is_after = self._calls.next_fault("StreamSettle")
        if refusal is not None and is_after:
            self._lost_settlements.add(message.request_id)
        elif refusal is not None:
            settled = pb.SubscribeResponse.Settled(request_id=message.request_id)
            settled.error.reason = error_pb2.Error.Reason.Value(refusal.reason)
            await self._send(pb.SubscribeResponse(settled=[settled]))
            return True
        return False

    async def write(self, raw):
        """Send a message of the node, unless it is lost."""
        response = pb.SubscribeResponse.FromString(raw)
        if any(each.request_id in self._lost_settlements for each in response.settled):
            self._finish(grpc.StatusCode.UNAVAILABLE)
            return
        for field in self._calls.loses:
            response.ClearField(field)
        if response.HasField("heartbeat"):
            self._calls.edit_heartbeat(response.heartbeat)
        if response.ByteSize():
            await self._send(response)
