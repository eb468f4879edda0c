"""Reconnection attempts back off, and small messages overtake entries on a slow connection."""

import asyncio
from types import SimpleNamespace

import grpc
import pytest

from taskraft_replication.core.types import Entry, LogIndex, MemberId, Message, MessageKind, Term
from taskraft_replication.errors import MemberInUse
from taskraft_replication.peers import link
from taskraft_replication.peers.codec import decode_frame
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.frame_connection import FrameSender
from taskraft_replication.peers.handshake import EXPELLED_KEY, Expulsion
from taskraft_replication.peers.link import (
    BACK_OFF_MAX_MS,
    BACK_OFF_MIN_MS,
    IN_USE_SECONDS,
    PeerLink,
)
from taskraft_replication.peers.pieces import HEAD_BYTES, PIECE_BYTES, HalfReceived, PieceReader
from taskraft_replication.storage.record import ENTRY_BYTES_MAX

ATTEMPTS = 7
READY = grpc.ChannelConnectivity.READY


class Channel:
    """A channel on which every call fails."""

    state = grpc.ChannelConnectivity.READY

    def stream_stream(self, *_, **__):
        return self.call

    stream_unary = unary_unary = unary_stream = stream_stream

    def call(self):
        raise OSError("nobody is there")

    def get_state(self):
        return self.state

    async def close(self, _grace=None):
        pass


class Timeouts:
    """Replaces ``asyncio.timeout``; each timeout expires at once and is recorded."""

    def __init__(self):
        self.seconds = []
        self.enough = asyncio.Event()

    def timeout(self, seconds):
        self.seconds.append(seconds)
        if len(self.seconds) == ATTEMPTS:
            self.enough.set()
        return self

    async def __aenter__(self):
        await asyncio.sleep(0)
        raise TimeoutError

    async def __aexit__(self, *_):
        pass


async def test_pauses_between_attempts_double_up_to_a_limit(monkeypatch):
    timeouts = Timeouts()
    monkeypatch.setattr(link.asyncio, "timeout", timeouts.timeout)
    reported = []
    events = SimpleNamespace(unreachable=reported.append)
    one = PeerLink(MemberId(2), Channel, None, None, events)
    await timeouts.enough.wait()
    await one.close()
    expected = [BACK_OFF_MIN_MS * 2**number for number in range(ATTEMPTS)]
    assert timeouts.seconds == [min(each, BACK_OFF_MAX_MS) / 1000 for each in expected]
    assert reported == [2] * ATTEMPTS


class Refused(grpc.aio.AioRpcError):
    """The refusal of a peer to which another process of this member is connected."""

    def __init__(self):
        said = grpc.aio.Metadata((EXPELLED_KEY, Expulsion.SECOND.value))
        code = grpc.StatusCode.FAILED_PRECONDITION
        super().__init__(code, grpc.aio.Metadata(), said, "another process")


@pytest.mark.parametrize("step_seconds", [IN_USE_SECONDS / 4, IN_USE_SECONDS])
async def test_a_process_ends_only_after_another_one_stayed_connected(monkeypatch, step_seconds):
    """At first, the peer may not have noticed the end of the previous process of this member."""
    timeouts, refused, attempts = Timeouts(), [], []
    monkeypatch.setattr(link.asyncio, "timeout", timeouts.timeout)
    loop, begin = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    monkeypatch.setattr(loop, "time", lambda: begin + step_seconds * len(attempts))

    class Refusing(Channel):
        def call(self):
            attempts.append(self)
            raise Refused

    def note(error):
        refused.append((len(attempts), error))

    events = SimpleNamespace(unreachable=lambda _: None, refused=note)
    one = PeerLink(MemberId(2), Refusing, None, Membership("c", 0, MemberId(1), 1), events)
    await timeouts.enough.wait()
    await one.close()
    (attempt, error), *_ = refused
    assert attempt == 1 + IN_USE_SECONDS / step_seconds
    assert isinstance(error, MemberInUse)


async def test_a_channel_that_cannot_connect_is_replaced_before_the_next_attempt(monkeypatch):
    """A new channel resolves the name of the peer, which may have another address now."""
    timeouts, opened = Timeouts(), []
    monkeypatch.setattr(link.asyncio, "timeout", timeouts.timeout)

    def open_channel():
        channel = Channel()
        channel.state = grpc.ChannelConnectivity.TRANSIENT_FAILURE if len(opened) < 2 else READY
        opened.append(channel)
        return channel

    events = SimpleNamespace(unreachable=lambda _: None)
    one = PeerLink(MemberId(2), open_channel, None, None, events)
    await timeouts.enough.wait()
    assert len(opened) == 3
    assert one.channel is opened[-1]
    await one.close()


class SlowWire:
    """A transport whose capacity the test sets; it parses the written bytes."""

    def __init__(self):
        self.sender = None
        self.unsent = bytearray()
        self.sent = 0
        self.arrived = []
        """Kind of each message, and the number of bytes after which it had arrived."""
        self.reader = PieceReader(self, 1 << 30, HalfReceived(1 << 30))

    def set_write_buffer_limits(self, **_):
        pass

    def write(self, data):
        self.unsent += data
        self.sender.pause_writing()

    def abort(self):
        pass

    def take(self, count):
        """Send some bytes."""
        data = bytes(self.unsent[:count])
        del self.unsent[:count]
        self.sent += len(data)
        self.reader.feed(data)
        if not self.unsent:
            self.sender.resume_writing()

    def frame_arrived(self, frame):
        self.arrived += [(message.kind, self.sent) for message in decode_frame(frame).messages]

    def bytes_arrived(self, term):
        pass

    def count(self, kind):
        return sum(each is kind for each, _ in self.arrived)


BEAT_BYTES = 60
"""Maximum size of a heartbeat with its frame, in bytes."""


async def test_a_heartbeat_waits_for_at_most_one_piece_of_64_mib_of_entries():
    """The test counts pieces: at 1 Mbit/s a piece takes half a second, and 64 MiB nine minutes."""
    wire = SlowWire()
    events = SimpleNamespace(unreachable=lambda _: None, make_beacon=bytes)
    one = PeerLink(MemberId(2), Channel, None, None, events)
    wire.sender = one._frames = FrameSender(one._flush)
    wire.sender.begin(wire)
    entry = Entry(Term(1), LogIndex(1), bytes(ENTRY_BYTES_MAX))
    one.put(Message(MessageKind.APPEND, MemberId(2), MemberId(1), Term(1), entries=(entry,)))
    one.flush_soon()
    beats = waits = 0
    while wire.sender.is_within_frame:
        put_at = wire.sent + len(wire.unsent)
        one.put(Message(MessageKind.HEARTBEAT, MemberId(2), MemberId(1), Term(1)))
        one.flush_soon()
        assert len(wire.unsent) <= PIECE_BYTES + HEAD_BYTES
        beats += 1
        while wire.count(MessageKind.HEARTBEAT) < beats:
            wire.take(9_999)
        waits = max(waits, wire.arrived[-1][1] - put_at)
        wire.take(99_999)
    assert beats > 500
    assert waits <= HEAD_BYTES + BEAT_BYTES + 9_999
    while wire.unsent:
        wire.take(9_999)
    assert wire.count(MessageKind.APPEND) == 1
    await one.close()
