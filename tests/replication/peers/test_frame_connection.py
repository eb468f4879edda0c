"""Frames arrive in order; a ticket opens one connection; other connections go to gRPC."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest

from taskraft_replication.core.types import Term
from taskraft_replication.peers import peer_port
from taskraft_replication.peers.connection_tickets import TICKET_BYTES, ConnectionTickets
from taskraft_replication.peers.frame_connection import (
    ENCRYPTED,
    MAGIC,
    PLAIN,
    UNSENT_BYTES_MAX,
    FrameReceiver,
    connect,
)
from taskraft_replication.peers.peer_port import PeerPort
from taskraft_replication.peers.pieces import HEAD_BYTES, PIECE_BYTES, FrameInvalid, PieceWriter
from taskraft_replication.peers.security import PeerSecurity
from tests.authority import Authority

pytestmark = pytest.mark.real_time

FRAME_BYTES_MAX = 4 << 20


class Listener:
    """The receiving side, with its received frames and the end of its connection."""

    def __init__(self, security=None, **limits):
        self.tickets = ConnectionTickets(FRAME_BYTES_MAX, 2 * FRAME_BYTES_MAX)
        self.port = PeerPort(self.tickets, security, **limits)
        self.frames = []
        self.came = asyncio.Event()
        self.address = ""

    async def start(self, grpc_port=0):
        self.address = f"127.0.0.1:{await self.port.start('127.0.0.1:0', grpc_port)}"

    async def stop(self):
        self.port.shut()
        await self.port.end()

    def frame_arrived(self, frame):
        self.frames.append(frame)
        self.came.set()

    def bytes_arrived(self, _term):
        pass

    def alive_arrived(self, term):
        self.frame_arrived(f"alive in {term}".encode())

    async def until(self, count):
        async with asyncio.timeout(20):
            while len(self.frames) < count:
                self.came.clear()
                await self.came.wait()


def encoded(*frames):
    """Return frames encoded as the first bytes of a connection."""
    writer = PieceWriter()
    return b"".join(writer.whole(frame, Term(1)) for frame in frames)


async def send(sender, changed, frame):
    """Send a whole frame; ``changed`` is set when the connection has capacity again."""
    sender.write([frame])
    await send_rest(sender, changed)


async def send_rest(sender, changed):
    """Send the rest of a long frame."""
    while sender.is_within_frame:
        changed.clear()
        if not sender.continue_frame():
            await changed.wait()


@pytest.fixture
async def listener():
    one = Listener()
    await one.start()
    yield one
    await one.stop()


async def connect_raw(address):
    host, peer_port = address.split(":")
    return await asyncio.open_connection(host, int(peer_port))


async def is_closed_by_peer(reader, writer):
    async with asyncio.timeout(20):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True
        finally:
            writer.close()


async def test_frames_of_any_size_arrive_whole_and_in_order(listener):
    frames = [b"", b"a", bytes(100), bytes(3 << 20), b"last"]
    with listener.tickets.issue(listener) as ticket:
        changed = asyncio.Event()
        sender = await connect(listener.address, ticket.token, None, changed.set)
        for frame in frames:
            await send(sender, changed, frame)
        await listener.until(len(frames))
        sender.close()
        async with asyncio.timeout(20):
            await ticket.end
    assert listener.frames == frames


async def test_a_frame_that_arrives_byte_by_byte_is_read_whole(listener):
    with listener.tickets.issue(listener) as ticket:
        _, writer = await connect_raw(listener.address)
        for byte in MAGIC + PLAIN + ticket.token + encoded(b"ab", b"c"):
            writer.write(bytes([byte]))
            await writer.drain()
        await listener.until(2)
        writer.close()
    assert listener.frames == [b"ab", b"c"]


async def test_a_ticket_opens_one_connection(listener):
    with listener.tickets.issue(listener) as ticket:
        sender = await connect(listener.address, ticket.token, None, lambda: None)
        sender.write([b"mine"])
        await listener.until(1)
        reader, writer = await connect_raw(listener.address)
        writer.write(MAGIC + PLAIN + ticket.token + encoded(b"x"))
        assert await is_closed_by_peer(reader, writer)
        sender.write([b"mine"])
        await listener.until(2)
        sender.close()
    assert listener.frames == [b"mine", b"mine"]


@pytest.mark.parametrize(
    "opening",
    [
        MAGIC + PLAIN + bytes(TICKET_BYTES),
        MAGIC + b"?",
        MAGIC + ENCRYPTED,  # A port without certificates accepts no encrypted connection.
    ],
)
async def test_a_connection_without_a_valid_ticket_is_closed(listener, opening, monkeypatch):
    # The port closes the connection at once, before its time limit.
    monkeypatch.setattr(peer_port, "BEGIN_SECONDS", 3600)
    reader, writer = await connect_raw(listener.address)
    writer.write(opening)
    assert await is_closed_by_peer(reader, writer)


async def test_a_small_frame_and_a_sign_of_life_overtake_a_long_frame(listener):
    long = bytes(3 * PIECE_BYTES)
    with listener.tickets.issue(listener) as ticket:
        changed = asyncio.Event()
        sender = await connect(listener.address, ticket.token, None, changed.set)
        sender.write([long[:1], long[1:]])
        assert sender.is_within_frame
        await listener.until(0)
        sender.write([b"small"])
        sender.write_alive(Term(7))
        await send_rest(sender, changed)
        await listener.until(3)
        sender.close()
    assert listener.frames == [b"small", b"alive in 7", long]


async def test_a_dropped_long_frame_does_not_arrive_and_later_frames_do(listener):
    with listener.tickets.issue(listener) as ticket:
        changed = asyncio.Event()
        sender = await connect(listener.address, ticket.token, None, changed.set)
        sender.drop_frame()
        sender.write([bytes(3 * PIECE_BYTES)])
        sender.drop_frame()
        await send(sender, changed, bytes(2 * PIECE_BYTES))
        await listener.until(1)
        sender.close()
    assert listener.frames == [bytes(2 * PIECE_BYTES)]


async def test_few_unsent_bytes_are_buffered_in_the_kernel(listener):
    """No frame overtakes unsent bytes, so many of them would delay heartbeats on a slow link."""
    with listener.tickets.issue(listener) as ticket:
        sender = await connect(listener.address, ticket.token, None, lambda: None)
        taken = sender._transport.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES_MAX
        sender.write([bytes(64 * PIECE_BYTES)])
        while sender.continue_frame():
            unsent = sender._transport.get_write_buffer_size()
            assert unsent <= HEAD_BYTES + PIECE_BYTES
            assert sender.is_full == (unsent > 0)
        assert sender.is_full, "the frame was not read yet"
        sender.close()


async def test_a_connection_ends_with_its_ticket(listener):
    lost = asyncio.Event()
    with listener.tickets.issue(listener) as ticket:
        sender = await connect(listener.address, ticket.token, None, lost.set)
        sender.write([b"x"])
        await listener.until(1)
    async with asyncio.timeout(20):
        await lost.wait()
    assert sender.is_lost
    sender.close()


async def test_a_refused_frame_ends_the_connection_with_its_reason(listener):
    class Refusing:
        def frame_arrived(self, _frame):
            raise FrameInvalid("no")

        bytes_arrived = alive_arrived = frame_arrived

    lost = asyncio.Event()
    with listener.tickets.issue(Refusing()) as ticket:
        sender = await connect(listener.address, ticket.token, None, lost.set)
        sender.write([b"x"])
        with pytest.raises(FrameInvalid, match="no"):
            async with asyncio.timeout(20):
                await ticket.end
        async with asyncio.timeout(20):
            await lost.wait()
    sender.close()


async def test_a_damaged_piece_ends_the_connection_with_the_reason(listener):
    damaged = bytearray(encoded(b"right", b"wrong"))
    damaged[-1] ^= 1
    with listener.tickets.issue(listener) as ticket:
        reader, writer = await connect_raw(listener.address)
        writer.write(MAGIC + PLAIN + ticket.token + bytes(damaged))
        assert await is_closed_by_peer(reader, writer)
        with pytest.raises(FrameInvalid, match="piece 1 of the connection fails its checksum"):
            await ticket.end
    assert listener.frames == [b"right"]


async def test_an_invalid_header_ends_the_connection_before_more_bytes_arrive(listener):
    with listener.tickets.issue(listener) as ticket:
        reader, writer = await connect_raw(listener.address)
        writer.write(MAGIC + PLAIN + ticket.token + bytes(HEAD_BYTES))
        assert await is_closed_by_peer(reader, writer)
        with pytest.raises(FrameInvalid, match="the header of piece 0 fails its checksum"):
            await ticket.end
    assert listener.frames == []


async def test_a_connection_that_is_not_read_is_full_until_it_is_read(listener):
    on_change = asyncio.Event()
    with listener.tickets.issue(listener) as ticket:
        sender = await connect(listener.address, ticket.token, None, on_change.set)
        count = 0
        while not sender.is_full:
            sender.write([bytes(PIECE_BYTES)])
            count += 1
        async with asyncio.timeout(20):
            await on_change.wait()
        assert not sender.is_full
        await listener.until(count)
        sender.close()


async def test_other_connections_are_forwarded_in_both_directions():
    async def answer(reader, writer):
        writer.write((await reader.readexactly(4 << 20))[::-1])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    listener = Listener()
    await listener.start(server.sockets[0].getsockname()[1])
    reader, writer = await connect_raw(listener.address)
    sent = b"TASK" + bytes(number % 251 for number in range(1 << 20)) * 4
    writer.write(sent[: 1 << 22])
    async with asyncio.timeout(20):
        received = await reader.read(-1)
    assert received == sent[: 1 << 22][::-1]
    writer.close()
    await listener.stop()
    server.close()


async def test_a_port_in_use_is_named_in_the_error(listener):
    with pytest.raises(OSError, match=f"cannot listen on {listener.address}"):
        await Listener().port.start(listener.address, 0)


async def test_a_port_without_grpc_behind_it_closes_other_connections():
    listener = Listener()
    await listener.start(grpc_port=1)
    reader, writer = await connect_raw(listener.address)
    writer.write(b"PRI * HTTP/2.0")
    assert await is_closed_by_peer(reader, writer)
    await listener.stop()


async def test_with_certificates_a_connection_is_encrypted_and_authenticated(
    tmp_path,
):
    authority = Authority(tmp_path, "nodes")
    one, two = (PeerSecurity(authority.node(name, "test"), "test", name) for name in ("n1", "n2"))
    listener = Listener(two)
    await listener.start()
    with listener.tickets.issue(listener, "n1") as ticket:
        with pytest.raises(OSError, match=r"n3\.test\.taskraft"):
            await connect(listener.address, ticket.token, one.frame_tls("n3"), lambda: None)
        sender = await connect(listener.address, ticket.token, one.frame_tls("n2"), lambda: None)
        sender.write([b"secret"])
        await listener.until(1)
        sender.close()
    await listener.stop()
    assert listener.frames == [b"secret"]


async def test_with_certificates_a_plain_connection_is_closed(tmp_path):
    authority = Authority(tmp_path, "nodes")
    security = PeerSecurity(authority.node("n1", "test"), "test", "n1")
    listener = Listener(security)
    await listener.start()
    with listener.tickets.issue(listener) as ticket:
        reader, writer = await connect_raw(listener.address)
        writer.write(MAGIC + PLAIN + ticket.token + encoded(b"x"))
        assert await is_closed_by_peer(reader, writer)
    await listener.stop()
    assert listener.frames == []


async def test_new_connections_use_a_renewed_certificate(tmp_path):
    authority = Authority(tmp_path, "nodes")
    security = PeerSecurity(authority.node("n1", "test"), "test", "n1")
    before = security.server_context()
    assert security.server_context() is before
    authority.node("n1", "test")
    security.current.refresh()
    assert security.server_context() is not before


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_arrives_while_the_port_closes_is_closed(listener, turns):
    loop = asyncio.get_running_loop()
    reported = []
    loop.set_exception_handler(lambda _loop, context: reported.append(context["message"]))
    host, peer_port = listener.address.split(":")
    with socket.create_connection((host, int(peer_port)), timeout=20) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        ended = asyncio.Event()
        # The number of loop turns varies the moment between the accept and the arrival.
        loop.call_soon(lambda: (listener.port.shut(), ended.set()))
        await ended.wait()
        await listener.port.end()
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert reported == []


async def test_an_ended_ticket_keeps_its_first_end(listener):
    with listener.tickets.issue(listener) as ticket:
        pass
    assert ticket.end.cancelled()
    ticket.lose(FrameInvalid("too late"))
    assert ticket.end.cancelled()


async def test_data_received_after_a_connection_was_closed_is_ignored(listener):
    """With TLS, data can arrive before the protocol learns of the connection."""

    class Closing(asyncio.Transport):
        def is_closing(self):
            return True

    receiver = FrameReceiver(listener.tickets, lambda: None, lambda: None)
    with listener.tickets.issue(listener) as ticket:
        receiver.data_received(ticket.token + encoded(b"x"))
        receiver.connection_made(Closing())
        assert not ticket.end.done()
    assert listener.frames == []
