"""Connections without credentials use few resources, end soon, and do not keep peers out."""

import asyncio
import ssl
from contextlib import suppress

import grpc
import pytest
from grpc import aio

from taskraft_replication.new_connections import NewConnections
from taskraft_replication.peers import byte_forwarder
from taskraft_replication.peers.byte_forwarder import ByteForwarder
from taskraft_replication.peers.frame_connection import ENCRYPTED, MAGIC, PLAIN, READY, connect
from taskraft_replication.peers.peer_port import NEW_CONNECTIONS_MAX
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.peers.transport import GrpcTransport
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub
from tests.authority import Authority
from tests.replication.peers.test_frame_connection import Listener, connect_raw, encoded
from tests.replication.peers.test_security import Node
from tests.replication.remembering_member import Member, beat, hello
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

HOSTILE = 1000
BURST_CALLS = 4000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a ClientHello."""

OPENINGS = [b"", MAGIC, MAGIC + PLAIN + b"half", MAGIC + ENCRYPTED, PREFACE, TLS_HELLO]


def members_in(path, kind):
    """Return two members that are not started: with certificates, or without."""
    if kind == "plain":
        return [Member(path, 1), Member(path, 2)]
    authority = Authority(path, "nodes")
    return [Node(path, authority, 1), Node(path, authority, 2)]


@pytest.fixture(params=["plain", "secured"])
async def pair(tmp_path, request):
    members = members_in(tmp_path, request.param)
    for member in members:
        await member.start()
    for member, other in zip(members, reversed(members), strict=True):
        (member.join if request.param == "plain" else member.meet)(other)
    yield members
    for member in members:
        await member.stop()


@pytest.fixture
async def opened():
    """Return a function that opens a connection to a port and sends its first bytes."""
    writers = []

    async def open_one(port, opening):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        writer.write(opening)
        return reader, writer

    yield open_one
    for writer in writers:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def ended(reader):
    """Wait until the node has closed a connection; return the bytes that the node has sent."""
    async with asyncio.timeout(20):
        with suppress(ConnectionError):
            return await reader.read()
        return b""


@pytest.mark.parametrize("opening", OPENINGS)
async def test_a_thousand_connections_without_credentials_keep_no_peer_out(pair, opened, opening):
    one, two = pair
    one.peers.send([beat(1)])
    await two.until(lambda: two.received)
    port = two.transport._port
    hostile = []
    for _ in range(HOSTILE):
        hostile.append(await opened(two.port, opening))
        assert len(port.new_connections) <= NEW_CONNECTIONS_MAX
    # The port has already closed some of these connections, and closes the rest soon.
    for reader, _ in hostile[: HOSTILE - NEW_CONNECTIONS_MAX]:
        await ended(reader)
    assert len(port._open) <= NEW_CONNECTIONS_MAX + 3, (
        "the other connections are those of gRPC and of the peer"
    )
    assert not one.lost, "the connection of the peer stays open"
    one.peers.renew()
    async with asyncio.timeout(20):
        while beat(2) not in two.received:
            one.peers.send([beat(2)])
            await asyncio.sleep(0)


@pytest.mark.parametrize("opening", OPENINGS)
async def test_a_connection_without_credentials_is_closed_soon(pair, opened, monkeypatch, opening):
    _, two = pair
    monkeypatch.setattr(two.transport._port.new_connections, "_seconds_max", 0.1)
    reader, _ = await opened(two.port, opening)
    assert b"HTTP" not in await ended(reader)
    await turns_until(lambda: len(two.transport._port.new_connections) == 0)


@pytest.mark.parametrize("pair", ["plain"], indirect=True)
async def test_a_connection_with_a_call_stays(pair):
    _, two = pair
    async with aio.insecure_channel(f"127.0.0.1:{two.port}") as channel:
        call = PeerServiceStub(channel).Exchange()
        await call.write(pb.ExchangeRequest(hello=hello(sender=9)))
        assert (await call.read()).connection_ticket
        port = two.transport._port
        await turns_until(lambda: len(port.new_connections) == 0)
        assert not port._without_call
        call.cancel()


OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class Echo(grpc.GenericRpcHandler):
    """Handlers of another package: one for each kind of call."""

    def service(self, details):
        async def answer(request, _context):
            return request

        async def stream(_requests, context):
            await context.write(await context.read())

        return {
            "/echo/Unary": grpc.unary_unary_rpc_method_handler(answer),
            "/echo/Stream": grpc.stream_stream_rpc_method_handler(stream),
        }.get(details.method)


async def test_a_connection_with_a_call_of_another_package_stays():
    transport = GrpcTransport(beside=(Echo(),))
    port = await transport.start("127.0.0.1:0")
    for method in ("Unary", "Stream"):
        async with aio.insecure_channel(f"127.0.0.1:{port}", OWN_CONNECTION) as channel:
            for _ in range(2):
                if method == "Unary":
                    assert await channel.unary_unary("/echo/Unary")(b"hello") == b"hello"
                else:
                    call = channel.stream_stream("/echo/Stream")()
                    await call.write(b"hello")
                    assert await call.read() == b"hello"
            assert len(transport._port.new_connections) == 0
    async with aio.insecure_channel(f"127.0.0.1:{port}", OWN_CONNECTION) as channel:
        with pytest.raises(aio.AioRpcError) as refusal:
            await channel.unary_unary("/echo/Unknown")(b"hello")
        assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert len(transport._port.new_connections) == 1, (
            "a call of an unknown method shows no purpose"
        )
    await transport.stop()


async def test_no_call_of_a_burst_is_cancelled():
    transport = GrpcTransport(beside=(Echo(),))
    port = await transport.start("127.0.0.1:0")
    async with aio.insecure_channel(f"127.0.0.1:{port}", OWN_CONNECTION) as channel:
        await channel.channel_ready()
        # The calls start in one turn of the event loop, so gRPC gets all calls before the port
        # does.
        calls = [channel.unary_unary("/echo/Unary")(b"hello") for _ in range(BURST_CALLS)]
        codes = {await call.code() for call in calls}
    await transport.stop()
    assert codes == {grpc.StatusCode.OK}


async def test_the_port_takes_a_limited_number_of_connections(opened):
    listener = Listener(connections_max=2)
    listener.port.new_connections = NewConnections(100, 3600)
    await listener.start()
    _, port = listener.address.split(":")
    first = [await opened(int(port), b"") for _ in range(2)]
    reader, _ = await opened(int(port), b"")
    assert await ended(reader) == b""
    first[0][1].close()
    reader, writer = first[1]
    writer.write(b"neither")
    await ended(reader)
    with listener.tickets.issue(listener) as ticket:
        async with asyncio.timeout(20):
            while not listener.frames:
                with suppress(OSError):
                    sender = await connect(listener.address, ticket.token, None, lambda: None)
                    sender.write([b"room again"])
                    await listener.until(1)
    sender.close()
    await listener.stop()


async def tls_to(listener, context, name, after):
    """Open a TLS connection with the caller's own context; return the answer of the port."""
    reader, writer = await connect_raw(listener.address)
    writer.write(MAGIC + ENCRYPTED)
    assert await reader.readexactly(1) == READY
    try:
        async with asyncio.timeout(20):
            await writer.start_tls(context, server_hostname=name)
            writer.write(after)
            return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def test_a_ticket_cannot_be_used_without_a_certificate(tmp_path):
    authority = Authority(tmp_path, "nodes")
    one, two = (PeerSecurity(authority.node(name, "test"), "test", name) for name in ("n1", "n2"))
    listener = Listener(two)
    await listener.start()
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.load_verify_locations(cadata=one.current.tls.authority.decode())
    with listener.tickets.issue(listener, "n1") as ticket:
        after = ticket.token + encoded(b"x")
        assert await tls_to(listener, stranger, "n2.test.taskraft", after) == b""
        assert listener.frames == []
        sender = await connect(listener.address, ticket.token, one.frame_tls("n2"), lambda: None)
        sender.write([b"mine"])
        await listener.until(1)
        sender.close()
    assert listener.frames == [b"mine"], "the refused caller has not used up the ticket"
    await listener.stop()


async def test_a_ticket_cannot_be_used_by_another_node(tmp_path):
    authority = Authority(tmp_path, "nodes")
    names = ("n1", "n2", "n3")
    _, two, three = (PeerSecurity(authority.node(name, "test"), "test", name) for name in names)
    listener = Listener(two)
    await listener.start()
    with listener.tickets.issue(listener, "n1") as ticket:
        context = three.frame_tls("n2").context
        after = ticket.token + encoded(b"x")
        assert await tls_to(listener, context, "n2.test.taskraft", after) == b""
    assert listener.frames == []
    await listener.stop()


async def test_a_certificate_of_another_cluster_opens_no_connection(tmp_path):
    authority = Authority(tmp_path, "nodes")
    two = PeerSecurity(authority.node("n2", "test"), "test", "n2")
    other = PeerSecurity(authority.node("n1", "other"), "other", "n1")
    listener = Listener(two)
    await listener.start()
    with listener.tickets.issue(listener, "n1") as ticket:
        context = other.frame_tls("n2").context
        after = ticket.token + encoded(b"x")
        assert await tls_to(listener, context, "n2.test.taskraft", after) == b""
    assert listener.frames == []
    assert len(listener.port.new_connections) == 0
    await listener.stop()


class Unread:
    """A transport whose peer reads nothing; only an abort closes it."""

    def __init__(self):
        self.calls = []
        self.is_aborted = asyncio.Event()

    def is_closing(self):
        return bool(self.calls)

    def close(self):
        self.calls.append("close")

    def abort(self):
        self.calls.append("abort")
        self.is_aborted.set()


async def test_a_peer_that_reads_nothing_does_not_keep_a_closed_connection_open(monkeypatch):
    monkeypatch.setattr(byte_forwarder, "LINGER_SECONDS", 0)
    other, ends = Unread(), []
    forwarder = ByteForwarder(other, lambda: ends.append(True))
    forwarder.connection_lost(None)
    assert (ends, other.calls) == ([True], ["close"])
    async with asyncio.timeout(20):
        await other.is_aborted.wait()
    forwarder.connection_lost(None)
    assert other.calls == ["close", "abort"]
