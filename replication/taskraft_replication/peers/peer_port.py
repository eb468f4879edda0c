"""Listen on the peer port: accept frame connections, and forward other connections to gRPC.

A gRPC server cannot share its port, so it listens on loopback behind this port. A connection that
does not start like a frame connection is forwarded byte for byte, including its TLS.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from taskraft_replication.background import Background
from taskraft_replication.peers.frame_connection import (
    BEGIN_SECONDS,
    ENCRYPTED,
    MAGIC,
    PLAIN,
    READY,
    ConnectionTickets,
    FrameReceiver,
)

_OPENING_BYTES: Final = len(MAGIC) + 1
_PASSED_ON_BYTES_MAX: Final = 1 << 20
"""Unsent bytes of a forwarded connection above which the other side is not read."""

_log = logging.getLogger(__name__)


ENDING_TURNS: Final = 4
"""Turns of the event loop after which a connection that was just accepted is certain to be closed.
"""


class PeerPort:
    """The port on which peers connect.

    Args:
        tickets: valid tickets of frame connections.
        server_context: returns the TLS context of frame connections; None: they are not encrypted.
    """

    def __init__(
        self,
        tickets: ConnectionTickets,
        server_context: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._tickets = tickets
        self._server_context = server_context
        self._server: asyncio.Server | None = None
        self._grpc_port = 0
        self._connections: WeakSet[asyncio.Transport] = WeakSet()
        self._background = Background()
        self._ended = False

    async def start(self, address: str, grpc_port: int) -> int:
        """Listen on ``host:port``; return the port, which the kernel chooses for 0.

        Raises:
            OSError: the address cannot be used.
        """
        self._grpc_port = grpc_port
        self._ended = False
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _NewConnection(self), host.strip("[]"), int(port)
            )
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def shut(self) -> None:
        """Stop listening; open connections stay open."""
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener)
        # A connection accepted in this turn is set up in the next one, and must not find its server
        # closed: it would fail there and stay open (CPython gh-109564, before 3.13).
        loop.call_soon(self._server.close)
        self._server = None

    async def end(self) -> None:
        """Close all connections."""
        self._ended = True
        for _ in range(ENDING_TURNS):
            # Abort the known connections first, before the tasks that hold references to them are
            # cancelled.
            for transport in [*self._connections]:
                transport.abort()
            self._background.cancel()
            await self._background.ended()
            await asyncio.sleep(0)

    def arrived(self, transport: asyncio.Transport) -> None:
        """Record a connection, so that it is closed with the port."""
        self._connections.add(transport)
        if self._ended:
            transport.abort()

    def serve_plain(self, transport: asyncio.Transport, opening: bytes) -> None:
        """Use a plain connection for frames; ``opening`` follows its first bytes."""
        if self._server_context is not None:
            # With certificates, tickets are issued to authenticated nodes only and must not travel
            # unencrypted.
            transport.abort()
            return
        receiver = FrameReceiver(self._tickets)
        transport.set_protocol(receiver)
        receiver.data_received(opening)
        receiver.connection_made(transport)

    def serve_encrypted(self, transport: asyncio.Transport) -> None:
        """Use a connection for frames once TLS is negotiated."""
        if self._server_context is None:
            transport.abort()
            return
        self._background.start(self._encrypt(transport, self._server_context))

    def forward_to_grpc(self, transport: asyncio.Transport, opening: bytes) -> None:
        """Forward a connection that began with ``opening`` to gRPC."""
        transport.pause_reading()
        self._background.start(self._pass_on(transport, opening))

    async def _encrypt(
        self, transport: asyncio.Transport, server_context: Callable[[], ssl.SSLContext]
    ) -> None:
        receiver = FrameReceiver(self._tickets)
        try:
            transport.write(READY)
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                receiver,
                server_context(),
                server_side=True,
                ssl_handshake_timeout=BEGIN_SECONDS,
            )
        except OSError as error:
            _log.warning("TLS handshake of a frame connection failed: %s", error)
            transport.abort()
            return
        assert encrypted is not None, "start_tls raises on failure"
        receiver.connection_made(encrypted)

    async def _pass_on(self, transport: asyncio.Transport, opening: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            inner, _ = await loop.create_connection(
                lambda: _ByteForwarder(transport), "127.0.0.1", self._grpc_port
            )
        except OSError as error:
            _log.warning("cannot connect to the local gRPC server: %s", error)
            transport.abort()
            return
        self._connections.add(inner)
        inner.write(opening)
        outer = _ByteForwarder(inner)
        outer.connection_made(transport)
        transport.set_protocol(outer)
        if transport.is_closing():
            inner.abort()
        else:
            transport.resume_reading()


class _NewConnection(asyncio.Protocol):
    """A connection whose type is not known yet."""

    def __init__(self, port: PeerPort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._opening = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``.

        A connection without data is closed after ``BEGIN_SECONDS``.
        """
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port.arrived(transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(BEGIN_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        assert self._transport is not None
        self._opening += data
        opening, kind = self._opening[: len(MAGIC)], self._opening[len(MAGIC) : _OPENING_BYTES]
        if not MAGIC.startswith(opening):
            self._decided()
            self._port.forward_to_grpc(self._transport, self._opening)
        elif kind == PLAIN:
            self._decided()
            self._port.serve_plain(self._transport, self._opening[_OPENING_BYTES:])
        elif self._opening == MAGIC + ENCRYPTED:
            self._decided()
            self._port.serve_encrypted(self._transport)
        elif kind:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        del exc
        self._decided()

    def _decided(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _ByteForwarder(asyncio.Protocol):
    """One end of a forwarded connection: writes received bytes to the other end."""

    def __init__(self, other: asyncio.Transport) -> None:
        self._other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_PASSED_ON_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._other.write(data)

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``: stop reading the other end while this end is full."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``: buffered bytes are still sent to the other end."""
        del exc
        self._other.close()
