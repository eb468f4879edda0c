"""Keep one ordered stream of messages open to one peer.

Raft survives the loss of any message, so nothing here is resent: what cannot be sent is dropped and
reported, and the core sends what is needed then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

import grpc
from grpc import aio

from replication.core.types import MemberId, Message
from replication.errors import DirectoryRefused, PeerRefused
from replication.peers.codec import encode_message
from replication.peers.contract import Membership
from replication.peers.handshake import EXPELLED_KEY, hello_to, sentence
from replication.peers.outbox import Outbox
from taskraft.raft.v1 import raft_pb2 as pb
from taskraft.raft.v1.raft_pb2_grpc import PeerServiceStub

BACK_OFF_MIN_MS: Final = 50
BACK_OFF_MAX_MS: Final = 1000
"""Longest pause between attempts; a peer that comes back ends the pause by calling us."""

DELAY_MS: Final = 20
"""How long a message that nobody waits for may wait for others to travel with."""

_log = logging.getLogger(__name__)


class LinkEvents(Protocol):
    """Learns what happens on a link."""

    def unreachable(self, member: MemberId) -> None:
        """See ``Receiver``."""

    def refused(self, error: DirectoryRefused) -> None:
        """See ``Receiver``."""

    def answered(self, member: MemberId, answer: pb.ExchangeResponse) -> None:
        """Look at who has answered at the member's address.

        Raises:
            PeerRefused: it is not the member.
        """


class PeerLink:
    """The outgoing messages to one peer: a bounded queue and the stream that empties it."""

    def __init__(
        self,
        member: MemberId,
        channel: aio.Channel,
        own: Membership,
        events: LinkEvents,
    ) -> None:
        self.member = member
        self.channel = channel
        self._own = own
        self._events = events
        self.is_patient = False
        """Whether no commit waits for the peer: others are asked first."""
        self._outbox = Outbox()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_paused = False
        self._pause_ms = BACK_OFF_MIN_MS
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def send(self, message: Message) -> None:
        """Queue a message, or drop it if the peer is out of reach or too slow."""
        if self._is_paused:
            return
        if not self._outbox.put(message, is_patient=self.is_patient):
            self._events.unreachable(self.member)
        elif self._outbox.is_urgent:
            self._wake.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(DELAY_MS / 1000, self._wake.set)

    def nudge(self) -> None:
        """End a pause: there is a sign of life from the peer."""
        if self._is_paused:
            self._pause_ms = BACK_OFF_MIN_MS
            self._wake.set()

    async def close(self) -> None:
        """End the stream."""
        # grpc.aio turns a cancellation into the status of a call that has ended by itself.
        self._is_closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.channel.close()

    async def _run(self) -> None:
        refusal = ""
        while True:
            try:
                await self._converse()
            except aio.AioRpcError as error:
                reason = error.details() or ""
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION and reason != refusal:
                    refusal = reason
                    _log.error("member %d refuses us: %s", self.member, reason)
                self._heed(error)
            except PeerRefused as error:
                if str(error) != refusal:
                    refusal = str(error)
                    _log.error("member %d is not spoken to: %s", self.member, error)
            if self._is_closed:
                return
            self._outbox.clear()
            self._stop_timer()
            self._events.unreachable(self.member)
            await self._pause()

    async def _converse(self) -> None:
        """Introduce ourselves and send until the stream breaks."""
        call = PeerServiceStub(self.channel).Exchange()
        try:
            hello = hello_to(self.member, self._own)
            await call.write(pb.ExchangeRequest(hello=hello))
            answer = await call.read()
            if not isinstance(answer, pb.ExchangeResponse):
                return
            self._events.answered(self.member, answer)
            self._pause_ms = BACK_OFF_MIN_MS
            # A stream that breaks while we have nothing to say must be noticed, or the next
            # message, perhaps a request for a vote, would be the one that finds out.
            call.add_done_callback(lambda _: self._wake.set())
            while not call.done():
                await self._wake.wait()
                self._wake.clear()
                self._stop_timer()
                while self._outbox:
                    frame = pb.ExchangeRequest()
                    frame.messages.extend(map(encode_message, self._outbox.take_frame()))
                    await call.write(frame)
        except asyncio.InvalidStateError:
            # grpc.aio reports a write on a stream that has just ended in this way.
            return
        finally:
            call.cancel()

    def _heed(self, error: aio.AioRpcError) -> None:
        """Pass it on if the peer will never listen to us again."""
        for key, kind in error.trailing_metadata() or ():
            if key == EXPELLED_KEY and isinstance(kind, str):
                expelled = sentence(kind, error.details() or "")
                if expelled is not None:
                    self._events.refused(expelled)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _pause(self) -> None:
        """Wait before the next attempt, longer each time, or until there is a sign of life."""
        self._is_paused = True
        self._wake.clear()
        try:
            async with asyncio.timeout(self._pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            self._pause_ms = min(2 * self._pause_ms, BACK_OFF_MAX_MS)
        self._is_paused = False
