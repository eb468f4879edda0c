"""Send frames between members over plain TCP or TLS connections of the event loop.

A message of a gRPC stream is passed from thread to thread on both sides, which costs 200 to 300 us
of CPU. A frame on a socket that the event loop reads and writes itself costs a fifth of that. A
stream between peers therefore has two parts. The gRPC call introduces and authenticates the sender
and reports a refusal. The frame connection, opened with the ticket from the call's response,
carries the messages. Both end together.

A frame connection starts with ``MAGIC`` and one byte that says whether it will be encrypted. If so,
the receiver answers ``READY`` and both sides negotiate TLS. The ticket follows, then the frames,
each after its length in four bytes.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Final

from taskraft_replication.errors import ReplicationError

MAGIC: Final = b"TASKRAFT"
"""Distinguishes frame connections from HTTP/2 ("PRI") and from TLS (0x16)."""
PLAIN: Final = b"-"
ENCRYPTED: Final = b"+"
READY: Final = b"!"
TICKET_BYTES: Final = 16
BEGIN_SECONDS: Final = 5.0
"""Maximum time to open a frame connection."""
UNSENT_BYTES_MAX: Final = 1 << 20
"""Unsent bytes above which messages stay in the send queue, where they can be merged."""

_HEAD: Final = Struct(">I")


class FrameInvalid(ReplicationError):
    """The bytes on a frame connection are not a frame; the stream is closed."""


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
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self.is_full = False

    async def ready(self) -> None:
        """Wait until the receiver is ready for TLS.

        Raises:
            ConnectionError: the receiver has closed the connection.
        """
        await self._ready

    def begin(self, transport: asyncio.Transport) -> None:
        """Send with ``transport`` from now on."""
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._transport = transport

    def write(self, frame: bytes) -> None:
        """Send a frame; the transport buffers what the socket does not take."""
        assert self._transport is not None, "begin() comes before write()"
        self._transport.write(_HEAD.pack(len(frame)) + frame)

    def close(self) -> None:
        """Close the connection; unsent bytes are lost."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``; the receiver sends only ``READY``."""
        if data == READY and not self._ready.done():
            self._ready.set_result(None)

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.is_full = True

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self.is_full = False
        self._on_change()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
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
        try:
            if tls is None:
                transport.write(MAGIC + PLAIN + ticket)
            else:
                transport.write(MAGIC + ENCRYPTED)
                await sender.ready()
                encrypted = await loop.start_tls(
                    transport, sender, tls.context, server_hostname=tls.server_name
                )
                assert encrypted is not None, "start_tls raises on failure"
                transport = encrypted
                transport.write(ticket)
        except BaseException:
            transport.abort()
            raise
    sender.begin(transport)
    return sender


# ---------------------------------------------------------------------------------- the receiver


class ConnectionTicket:
    """Single-use credential that lets a peer open one frame connection.

    Args:
        take: receives each frame, in order; an exception closes the connection.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.token: Final = secrets.token_bytes(TICKET_BYTES)
        self.take: Final = take
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost; fails with the exception of ``take``."""
        self._transport: asyncio.Transport | None = None

    def redeem(self, transport: asyncio.Transport) -> None:
        """Attach the connection, so that ``close`` also closes it."""
        self._transport = transport

    def lose(self, error: Exception | None = None) -> None:
        """Record that the connection is lost or unusable."""
        if self.end.done():
            return
        if error is None:
            self.end.set_result(None)
        else:
            self.end.set_exception(error)

    def close(self) -> None:
        """Close the connection."""
        self.end.cancel()
        if self._transport is not None:
            self._transport.abort()


class ConnectionTickets:
    """The issued tickets that were not redeemed yet."""

    def __init__(self) -> None:
        self._open: dict[bytes, ConnectionTicket] = {}

    @contextmanager
    def issue(self, take: Callable[[bytes], None]) -> Iterator[ConnectionTicket]:
        """Issue a ticket; the ticket and its connection end with the context."""
        ticket = ConnectionTicket(take)
        self._open[ticket.token] = ticket
        try:
            yield ticket
        finally:
            self._open.pop(ticket.token, None)
            ticket.close()

    def redeem(self, token: bytes) -> ConnectionTicket | None:
        """Return the ticket of a token that is used for the first time, or None."""
        return self._open.pop(token, None)


class FrameReceiver(asyncio.Protocol):
    """Receiving end of a frame connection: reads the ticket, then frames.

    Args:
        tickets: the valid tickets.
        frame_bytes_max: maximum length of a frame.
    """

    def __init__(self, tickets: ConnectionTickets, frame_bytes_max: int) -> None:
        self._tickets = tickets
        self._frame_bytes_max = frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._ticket: ConnectionTicket | None = None
        self._unread = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``; may come after the first data where TLS was negotiated."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._unread:
            self._read(transport)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._unread += data
        if self._transport is not None:
            self._read(self._transport)

    def _read(self, transport: asyncio.Transport) -> None:
        if transport.is_closing():
            return
        ticket = self._ticket or self._redeem(transport)
        if ticket is None:
            return
        try:
            self._take_frames(ticket)
        except Exception as error:  # noqa: BLE001 - the issuer of the ticket handles it
            ticket.lose(error)
            transport.abort()

    def _redeem(self, transport: asyncio.Transport) -> ConnectionTicket | None:
        if len(self._unread) < TICKET_BYTES:
            return None
        ticket = self._tickets.redeem(bytes(self._unread[:TICKET_BYTES]))
        if ticket is None:
            transport.abort()
            return None
        ticket.redeem(transport)
        del self._unread[:TICKET_BYTES]
        self._ticket = ticket
        return ticket

    def _take_frames(self, ticket: ConnectionTicket) -> None:
        unread = self._unread
        begin, end = 0, len(unread)
        while end - begin >= _HEAD.size:
            (size,) = _HEAD.unpack_from(unread, begin)
            if size > self._frame_bytes_max:
                raise FrameInvalid(
                    f"a frame of {size} bytes exceeds the limit of {self._frame_bytes_max} bytes"
                )
            behind = begin + _HEAD.size + size
            if behind > end:
                break
            ticket.take(bytes(unread[begin + _HEAD.size : behind]))
            begin = behind
        del unread[:begin]

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        del exc
        if self._ticket is not None:
            self._ticket.lose()
