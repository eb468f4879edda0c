"""Carry frames from one member to another on a plain connection of the event loop.

A message of a gRPC stream is handed from thread to thread on both sides, which costs 200 to 300 us
of CPU; a frame on a socket that the event loop itself reads and writes costs a fifth of that. So a
stream between peers has two parts: the gRPC call introduces the sender, authenticates it and says
why it is refused; a lane, opened with the ticket that the call has brought, carries the frames. One
ends with the other.

A lane begins with ``MAGIC`` and one byte that says whether it will be encrypted; if so, the other
side answers ``READY`` and both negotiate TLS. The ticket comes next, then frames, each after its
length in four bytes.
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
"""Unlike the beginning of HTTP/2 ("PRI") and that of TLS (0x16)."""
PLAIN: Final = b"-"
ENCRYPTED: Final = b"+"
READY: Final = b"!"
TICKET_BYTES: Final = 16
BEGIN_SECONDS: Final = 5.0
"""How long it may take until a lane is open."""
UNSENT_BYTES_MAX: Final = 1 << 20
"""Above so much unsent the outbox keeps its messages, and joins them."""

_HEAD: Final = Struct(">I")


class FrameInvalid(ReplicationError):
    """What came on a lane is no frame; the stream ends."""


@dataclass(slots=True, frozen=True)
class FrameTls:
    """How a lane is encrypted on the side that opens it: whom to trust, and who must answer."""

    context: ssl.SSLContext
    server_name: str


# ---------------------------------------------------------------------------------- the sender


class FrameSender(asyncio.Protocol):
    """The end of a lane that speaks; made by ``connect``.

    Args:
        stirred: called when the lane is lost, or has room again.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self.is_full = False

    async def ready(self) -> None:
        """Wait until the other side begins with TLS.

        Raises:
            ConnectionError: it has hung up.
        """
        await self._ready

    def begin(self, transport: asyncio.Transport) -> None:
        """Send by ``transport`` from now on."""
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._transport = transport

    def write(self, frame: bytes) -> None:
        """Send a frame, at once if the connection takes it."""
        assert self._transport is not None, "the lane has begun"
        self._transport.write(_HEAD.pack(len(frame)) + frame)

    def close(self) -> None:
        """End the lane; what the connection has not taken is lost."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``: the only thing that comes is that TLS may begin."""
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
            self._ready.set_exception(exc or ConnectionError("the peer has hung up"))
            # Nobody may be waiting for it.
            self._ready.exception()
        self._on_change()


async def connect(
    address: str, ticket: bytes, tls: FrameTls | None, on_change: Callable[[], None]
) -> FrameSender:
    """Open a lane to the peer at ``host:port`` with the ticket that it gave.

    Raises:
        OSError: it cannot be reached, or is not who it should be; TimeoutError: not in time.
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
                assert encrypted is not None, "start_tls fails by an exception"
                transport = encrypted
                transport.write(ticket)
        except BaseException:
            transport.abort()
            raise
    sender.begin(transport)
    return sender


# ---------------------------------------------------------------------------------- the receiver


class ConnectionTicket:
    """The right to open one lane, and what becomes of its frames.

    Args:
        take: takes each frame, in order; what it raises ends the lane.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.token: Final = secrets.token_bytes(TICKET_BYTES)
        self.take: Final = take
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the lane is gone; fails with what ``take`` raised."""
        self._transport: asyncio.Transport | None = None

    def redeem(self, transport: asyncio.Transport) -> None:
        """Let the lane be closed with the ticket."""
        self._transport = transport

    def lose(self, error: Exception | None = None) -> None:
        """Note that the lane is gone, or of no use any more."""
        if self.end.done():
            return
        if error is None:
            self.end.set_result(None)
        else:
            self.end.set_exception(error)

    def close(self) -> None:
        """End the lane."""
        self.end.cancel()
        if self._transport is not None:
            self._transport.abort()


class ConnectionTickets:
    """The tickets that were given out and are good for a lane."""

    def __init__(self) -> None:
        self._open: dict[bytes, ConnectionTicket] = {}

    @contextmanager
    def issue(self, take: Callable[[bytes], None]) -> Iterator[ConnectionTicket]:
        """Give out a ticket; it and its lane end with the context."""
        ticket = ConnectionTicket(take)
        self._open[ticket.token] = ticket
        try:
            yield ticket
        finally:
            self._open.pop(ticket.token, None)
            ticket.close()

    def redeem(self, token: bytes) -> ConnectionTicket | None:
        """Return what belongs to a ticket that comes for the first time."""
        return self._open.pop(token, None)


class FrameReceiver(asyncio.Protocol):
    """The end of a lane that listens: reads the ticket, then frames.

    Args:
        tickets: those that are good.
        frame_bytes_max: longer ones are nonsense.
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
        except Exception as error:  # noqa: BLE001 - whoever issued the ticket judges it
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
                raise FrameInvalid(f"a frame of {size} bytes")
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
