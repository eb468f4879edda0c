"""Send frames between members over plain TCP or TLS connections of the event loop.

Messages of a gRPC stream change threads on both sides, which takes 200 to 300 us of CPU per
message. A frame on a socket of the event loop takes a fifth of this time. A stream between peers
therefore has two parts. The gRPC call introduces and authenticates the sender and reports a
refusal. The frame connection, opened with the ticket from the call's response, carries the
messages. The call and the frame connection end together.

A frame connection starts with ``MAGIC`` and one byte: ``-`` for a plain or ``+`` for an encrypted
connection. On an encrypted connection, the receiver answers ``READY`` and both sides negotiate TLS.
The sender then sends the ticket, and the frames as pieces: see
``taskraft_replication.peers.pieces``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from taskraft_replication.core.types import Term
from taskraft_replication.peers.connection_tickets import (
    TICKET_BYTES,
    ConnectionTicket,
    ConnectionTickets,
)
from taskraft_replication.peers.pieces import PIECE_BYTES, PieceWriter

MAGIC: Final = b"TASKRAFT"
"""Distinguishes frame connections from HTTP/2 ("PRI") and from TLS (0x16)."""
PLAIN: Final = b"-"
ENCRYPTED: Final = b"+"
READY: Final = b"!"
BEGIN_SECONDS: Final = 5.0
"""Maximum time to open a frame connection."""
UNSENT_BYTES_MAX: Final = 64 << 10
"""Maximum number of unsent bytes in the kernel. Further messages stay in the send queue, where
they can be merged and overtaken."""


@dataclass(slots=True, frozen=True)
class FrameTls:
    """TLS settings of the connecting side: the trusted CA and the expected name of the peer."""

    context: ssl.SSLContext
    server_name: str


# ---------------------------------------------------------------------------------- the sender


class FrameSender(asyncio.Protocol):
    """Sending end of a frame connection; created by ``connect``.

    Args:
        on_change: called when the connection is lost or can take more bytes.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._transport: asyncio.Transport | None = None
        self._pieces = PieceWriter()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self.is_full = False
        self.leading_term = Term(0)
        """Term in which this member leads; 0 if it does not lead."""

    async def ready(self) -> None:
        """Wait until the receiver is ready for TLS.

        Raises:
            ConnectionError: the receiver has closed the connection.
        """
        await self._ready

    def begin(self, transport: asyncio.Transport) -> None:
        """Send with ``transport`` from now on."""
        # Pause as soon as the kernel does not accept all bytes at once.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport

    @property
    def is_within_frame(self) -> bool:
        """Whether a long frame is being sent, which only small frames may overtake."""
        return self._pieces.is_within_frame

    def write(self, frame: Sequence[bytes]) -> None:
        """Send a frame; of a long frame, send only the first piece (see ``continue_frame``)."""
        assert self._transport is not None, "begin() comes before write()"
        if sum(map(len, frame)) <= PIECE_BYTES:
            self._transport.write(self._pieces.whole(b"".join(frame), self.leading_term))
        else:
            self._pieces.begin(frame)
            self.continue_frame()

    def continue_frame(self) -> bool:
        """Send the next piece of a long frame if the connection accepts it; return whether sent."""
        if self.is_full or self._transport is None or not self._pieces.is_within_frame:
            return False
        self._transport.write(self._pieces.next(self.leading_term))
        return True

    def drop_frame(self) -> None:
        """Stop sending the current long frame, if there is one."""
        if self._transport is not None and self._pieces.is_within_frame:
            self._transport.write(self._pieces.drop())

    def write_alive(self, term: Term) -> None:
        """Send an activity report to the leader of ``term``, unless the connection is full."""
        if self._transport is not None and not self.is_full:
            self._transport.write(self._pieces.alive(term))

    def close(self) -> None:
        """Close the connection; unsent bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Note that the receiver is ready; the receiver sends only ``READY``."""
        if data == READY and not self._ready.done():
            self._ready.set_result(None)

    def pause_writing(self) -> None:
        """Note that the send buffer is full."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that the send buffer has space again, and report the change."""
        self.is_full = False
        self._on_change()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss of the connection, and fail the wait for the receiver."""
        self.is_lost = True
        if not self._ready.done():
            self._ready.set_exception(exc or ConnectionError("the peer closed the connection"))
            # Mark the exception as retrieved, because no coroutine may be waiting for it.
            self._ready.exception()
        self._on_change()


async def connect(
    address: str, ticket: bytes, tls: FrameTls | None, on_change: Callable[[], None]
) -> FrameSender:
    """Open a frame connection to the peer at ``host:port`` with the ticket from its response.

    Raises:
        OSError: the peer cannot be reached, or its certificate has another name.
        TimeoutError: the connection was not open in time.
    """
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    sender = FrameSender(on_change)
    async with asyncio.timeout(BEGIN_SECONDS):
        transport: asyncio.Transport
        transport, _ = await loop.create_connection(lambda: sender, host.strip("[]"), int(port))
        _limit_unsent(transport)
        try:
            if tls is None:
                transport.write(MAGIC + PLAIN + ticket)
            else:
                transport.write(MAGIC + ENCRYPTED)
                await sender.ready()
                encrypted = await loop.start_tls(
                    transport, sender, tls.context, server_hostname=tls.server_name
                )
                assert encrypted is not None, "nobody else closes this end"
                transport = encrypted
                transport.write(ticket)
        except BaseException:
            transport.abort()
            raise
    sender.begin(transport)
    return sender


def _limit_unsent(transport: asyncio.Transport) -> None:
    """Limit the unsent bytes in the kernel, because no message can overtake these bytes."""
    transport.set_write_buffer_limits(high=1, low=0)
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)


# ---------------------------------------------------------------------------------- the receiver


class FrameReceiver(asyncio.Protocol):
    """Receiving end of a frame connection: reads the ticket, then frames.

    Args:
        tickets: the valid tickets.
        on_known: called when a valid ticket has arrived.
        on_end: called when the connection is lost.
    """

    def __init__(
        self,
        tickets: ConnectionTickets,
        on_known: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._tickets = tickets
        self._on_known = on_known
        self._on_end = on_end
        self.node = ""
        """The node that opened the connection; empty without certificates."""
        self._transport: asyncio.Transport | None = None
        self._ticket: ConnectionTicket | None = None
        self._unread = b""
        """The beginning of a ticket, or bytes that arrived before ``connection_made``."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, and process data that arrived during the TLS negotiation."""
        # The transports of other event loops are no subclasses of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        if self._unread:
            self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        """Give the bytes to the ticket of the connection; redeem the ticket first."""
        if self._ticket is None:
            self._unread += data
            self._redeem()
        else:
            self._ticket.feed(data)

    def _redeem(self) -> None:
        """Look up the ticket once it is complete, and process the bytes after the ticket."""
        transport, unread = self._transport, self._unread
        if transport is None or transport.is_closing() or len(unread) < TICKET_BYTES:
            return
        self._ticket = self._tickets.redeem(unread[:TICKET_BYTES], self.node)
        if self._ticket is None:
            transport.abort()
            return
        self._on_known()
        self._unread = b""
        self._ticket.redeem(transport)
        self._ticket.feed(unread[TICKET_BYTES:])

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection to the port and to the ticket."""
        del exc
        self._on_end()
        if self._ticket is not None:
            self._ticket.lose()
