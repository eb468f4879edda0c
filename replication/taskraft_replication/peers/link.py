"""Maintain one ordered stream of messages to one peer.

Raft tolerates the loss of any message, so nothing is resent here. A message that cannot be sent is
dropped and reported, and the core then sends the messages that the peer needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import grpc
from grpc import aio

from taskraft_replication.background import Background, run_beside
from taskraft_replication.core.types import MemberId, Message, Term
from taskraft_replication.errors import DirectoryRefused, MemberInUse, PeerRefused
from taskraft_replication.peers.codec import encode_frame
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.frame_connection import FrameSender
from taskraft_replication.peers.handshake import EXPELLED_KEY, expulsion_error, hello_to
from taskraft_replication.peers.send_batcher import LinkCapacity, SendBatcher
from taskraft_replication.peers.send_queue import PeerSendQueue
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub

BACK_OFF_MIN_MS: Final = 50
BACK_OFF_MAX_MS: Final = 1000
"""Maximum pause between connection attempts. A peer that reconnects to this member ends the pause.
"""

CLOSE_GRACE_SECONDS: Final = 5.0
"""Maximum time that calls on a replaced channel have to fail on their own: the channel has no
connection, but a snapshot transfer may be trying to use it."""

IN_USE_SECONDS: Final = 10.0
"""Maximum time for which a peer refuses this process because another process of this member is
connected, in seconds; then this process ends. The keepalive of a lost connection fails after 4 s.
"""

LAST_WORD_SECONDS: Final = 1.0
"""Maximum time to wait for a peer to report why it closed a frame connection."""

_log = logging.getLogger(__name__)

ExchangeCall: TypeAlias = aio.StreamStreamCall[pb.ExchangeRequest, pb.ExchangeResponse]
OpenChannel: TypeAlias = Callable[[], aio.Channel]
"""Creates a gRPC channel to the peer, which connects when it is used."""
ConnectFrames: TypeAlias = Callable[[bytes, Callable[[], None]], Awaitable[FrameSender]]
"""Opens the frame connection to the peer; see ``frame_connection.connect``."""


class LinkEvents(Protocol):
    """Receives the events of a link."""

    def make_beacon(self) -> bytes:
        """Return the beacon for a frame with a heartbeat; see ``Beacons``."""

    def unreachable(self, member: MemberId) -> None:
        """Handle the loss of messages to ``member``."""

    def refused(self, error: DirectoryRefused) -> None:
        """Stop this member, because a peer refuses it permanently."""

    def answered(self, member: MemberId, answer: pb.ExchangeResponse) -> None:
        """Check the identity of the peer that answered at the member's address.

        Raises:
            PeerRefused: another member answered.
        """


class PeerLink:
    """The outgoing messages to one peer: a bounded queue, and the stream that empties it."""

    def __init__(
        self,
        member: MemberId,
        open_channel: OpenChannel,
        connect: ConnectFrames,
        own: Membership,
        events: LinkEvents,
    ) -> None:
        self.member = member
        self._open_channel = open_channel
        self.channel = open_channel()
        """The current channel. An attempt to connect may replace it."""
        self._replaced = Background()
        self._connect = connect
        self._frames: FrameSender | None = None
        self._leading_term = Term(0)
        self._own = own
        self._events = events
        self._is_closed = False
        self._is_paused = False
        self._pause_ms = BACK_OFF_MIN_MS
        self._in_use_since: float | None = None
        self._wake = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.batcher = SendBatcher(
            PeerSendQueue(),
            self._flush,
            lambda delay_ms, run: loop.call_later(delay_ms / 1000, run),
        )
        self._task = run_beside(self._run())

    def put(self, message: Message) -> None:
        """Queue a message; drop it if the peer is unreachable or the queue is full."""
        if not self._is_paused and not self.batcher.put(message):
            self._events.unreachable(self.member)

    def flush_soon(self) -> None:
        """Send the queued messages: at once if one is urgent, otherwise after a delay."""
        self.batcher.flush_soon()

    def set_leading_term(self, term: Term) -> None:
        """Set the term in which this member leads; 0 (not the leader) drops queued appends."""
        self._leading_term = term
        if not term:
            self.batcher.drop_bulk()
        if self._frames is not None:
            self._frames.leading_term = term
            if not term:
                self._frames.drop_frame()

    def send_alive(self, term: Term) -> None:
        """Send an activity report to the peer, the leader of ``term``."""
        if self._frames is not None:
            self._frames.write_alive(term)

    def _capacity(self) -> LinkCapacity:
        frames = self._frames
        if frames is None or frames.is_full:
            return LinkCapacity.NOTHING
        return LinkCapacity.SMALL if frames.is_within_frame else LinkCapacity.ANYTHING

    def _flush(self) -> None:
        """Send queued frames while the connection accepts them."""
        is_going_on = True
        while is_going_on:
            for frame in self.batcher.frames(self._capacity):
                assert self._frames is not None
                self._frames.write(encode_frame(frame, self._events.make_beacon))
            is_going_on = self._frames is not None and self._frames.continue_frame()

    def reset_backoff(self) -> None:
        """Retry the connection now, because the peer has contacted this member."""
        if self._is_paused:
            self._pause_ms = BACK_OFF_MIN_MS
            self._wake.set()

    async def close(self) -> None:
        """Close the stream."""
        # grpc.aio reports a cancellation as the status of a call that has ended on its own.
        self._is_closed = True
        self._task.cancel()
        self._replaced.cancel()
        await asyncio.gather(self._task, self._replaced.ended(), return_exceptions=True)
        await self.channel.close()

    async def _run(self) -> None:
        refusal = ""
        while True:
            try:
                await self._run_stream()
            except aio.AioRpcError as error:
                reason = error.details() or ""
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION and reason != refusal:
                    refusal = reason
                    _log.error("member %d refuses this member: %s", self.member, reason)
                self._report_expulsion(error)
            except (PeerRefused, OSError) as error:
                if str(error) != refusal:
                    refusal = str(error)
                    _log.error("cannot connect to member %d: %s", self.member, error)
            if self._is_closed:
                return
            self.batcher.clear()
            self._events.unreachable(self.member)
            await self._pause()
            self._replace_channel()

    def _replace_channel(self) -> None:
        """Replace a channel without a connection, so that the next attempt resolves the name.

        A gRPC channel resolves a name at most every 30 s by default, and pauses for up to 120 s
        after a failed resolution. A peer that restarted with a new address could not be reached for
        that long.
        """
        if self.channel.get_state() is not grpc.ChannelConnectivity.READY:
            self._replaced.start(self.channel.close(CLOSE_GRACE_SECONDS))
            self.channel = self._open_channel()

    async def _run_stream(self) -> None:
        """Introduce this member and send messages until the stream breaks."""
        call = PeerServiceStub(self.channel).Exchange()
        try:
            hello = hello_to(self.member, self._own)
            await call.write(pb.ExchangeRequest(hello=hello))
            answer = await call.read()
            if not isinstance(answer, pb.ExchangeResponse):
                return
            self._events.answered(self.member, answer)
            self._pause_ms = BACK_OFF_MIN_MS
            self._in_use_since = None
            # Detect a broken stream at once, even without messages to send. Otherwise the next
            # message, possibly a vote request, would be lost.
            call.add_done_callback(lambda _: self._wake.set())
            self._frames = await self._connect(answer.connection_ticket, self._wake.set)
            self._frames.leading_term = self._leading_term
            while not (call.done() or self._frames.is_lost):
                self._wake.clear()
                self._flush()
                await self._wake.wait()
            await self._wait_for_status(call)
        except asyncio.InvalidStateError:
            # grpc.aio raises this for a write on a stream that has just ended.
            return
        finally:
            if self._frames is not None:
                self._frames.close()
                self._frames = None
            call.cancel()

    async def _wait_for_status(self, call: ExchangeCall) -> None:
        """Wait for the end of a call whose frame connection is lost.

        Raises:
            AioRpcError: the peer has refused this member, with the reason.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await call.read()

    def _report_expulsion(self, error: aio.AioRpcError) -> None:
        """Report the error if the peer has refused this member permanently."""
        for key, kind in error.trailing_metadata() or ():
            if key == EXPELLED_KEY and isinstance(kind, str):
                expelled = expulsion_error(kind, error.details() or "")
                if expelled is not None and self._is_final(expelled):
                    self._events.refused(expelled)

    def _is_final(self, refusal: DirectoryRefused) -> bool:
        """Return whether the peer will not accept this process any more.

        A stream of the previous process of this member may look open to the peer until the
        keepalive of its connection has failed, so this process waits for that time.
        """
        if not isinstance(refusal, MemberInUse):
            return True
        now = asyncio.get_running_loop().time()
        if self._in_use_since is None:
            self._in_use_since = now
        return now - self._in_use_since >= IN_USE_SECONDS

    async def _pause(self) -> None:
        """Wait before the next attempt, with increasing delay, or until ``reset_backoff``."""
        self._is_paused = True
        self._wake.clear()
        try:
            async with asyncio.timeout(self._pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            self._pause_ms = min(2 * self._pause_ms, BACK_OFF_MAX_MS)
        self._is_paused = False
