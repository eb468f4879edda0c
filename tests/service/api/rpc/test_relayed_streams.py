"""Relay of streams to the leader, which fails or misbehaves."""

import asyncio

import grpc
import grpc.aio
import pytest

from taskraft_service.access.caller import ANONYMOUS
from taskraft_service.api.rpc.calls_at_leader import (
    LeaderLost,
)
from taskraft_service.api.rpc.forwarding_metadata import (
    HOPS_KEY,
)
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from tests.service.api.rpc.leader_bench import LEADER, METHOD, NEXT_LEADER

pytestmark = pytest.mark.real_time


class LeaderStream:
    """The leader's end of a stream: some messages, then perhaps an error."""

    def __init__(self, *messages, error=None):
        self.messages, self.error = messages, error
        self.cancelled = False
        self.received = []

    def stream_stream(self, method):
        self.method = method
        return self._open

    def _open(self, requests, metadata):
        self.requests, self.metadata = requests, dict(metadata)
        return self

    async def __aiter__(self):
        async for raw in self.requests:
            self.received.append(raw)
        for message in self.messages:
            yield message
        if self.error is not None:
            raise self.error

    def cancel(self):
        self.cancelled = True


class ClientStream:
    """A client that sends some messages and then half-closes."""

    deadline = None

    def __init__(self, *messages, **metadata):
        self.metadata = metadata
        self.messages = [*messages, None]
        self.received = []

    async def read(self):
        return self.messages.pop(0)

    async def write(self, raw):
        self.received.append(raw)


def relaying(bench, upstream):
    async def leader_channel(_deadline):
        return upstream, LEADER

    bench.forwarder.route.channel = leader_channel
    return bench.forwarder


async def test_a_relayed_stream_carries_messages_both_ways_and_the_trace(bench):
    upstream, stream = LeaderStream(b"b"), ClientStream(b"a2", traceparent="00-aa-bb-01")
    await relaying(bench, upstream).relay(METHOD, b"a1", stream, ANONYMOUS)
    assert (upstream.method, upstream.received) == (METHOD, [b"a1", b"a2"])
    assert upstream.metadata == {HOPS_KEY: "1", "traceparent": "00-aa-bb-01"}
    assert stream.received == [b"b"]
    assert upstream.cancelled


def rpc_error(code):
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


async def test_an_error_of_the_leader_ends_a_relayed_stream(bench):
    upstream = LeaderStream(error=rpc_error(grpc.StatusCode.INVALID_ARGUMENT))
    with pytest.raises(LeaderAnsweredError) as caught:
        await relaying(bench, upstream).relay(METHOD, b"a", ClientStream(), ANONYMOUS)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert upstream.cancelled


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_a_relayed_stream_ends_when_the_leader_becomes_unreachable(bench, code):
    upstream = LeaderStream(error=rpc_error(code))
    with pytest.raises(LeaderLost) as caught:
        await relaying(bench, upstream).relay(METHOD, b"a", ClientStream(), ANONYMOUS)
    assert caught.value.leader == LEADER


async def test_a_relayed_stream_ends_when_another_node_leads(bench):
    opened = asyncio.Event()

    async def serve(requests, _context):
        async for raw in requests:
            opened.set()
            yield raw

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("taskraft.v1.TaskService", {"PutTasks": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    bench.leads(LEADER)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = ClientStream()
        stream.read = asyncio.Event().wait
        relay = relaying(bench, channel).relay(METHOD, b"a", stream, ANONYMOUS)
        relaying_task = asyncio.ensure_future(relay)
        await opened.wait()
        bench.leads(NEXT_LEADER, term=2)
        with pytest.raises(LeaderLost):
            await relaying_task
    await server.stop(None)
    assert stream.received == [b"a"]
