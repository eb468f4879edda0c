"""Listen on the peer port: accept frame connections, and forward other connections to gRPC.

A gRPC server cannot share its port, so it listens on loopback behind this port. A connection that
does not start like a frame connection is forwarded byte for byte, including its TLS.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast
from weakref import WeakSet

from taskraft_replication.background import Background
from taskraft_replication.errors import PeerRefused
from taskraft_replication.new_connections import (
    ACCEPTS_PER_TURN,
    NewConnections,
    lengthen_backlog,
)
from taskraft_replication.peers.byte_forwarder import ByteForwarder
from taskraft_replication.peers.connection_tickets import ConnectionTickets
from taskraft_replication.peers.frame_connection import (
    BEGIN_SECONDS,
    ENCRYPTED,
    MAGIC,
    PLAIN,
    READY,
    FrameReceiver,
)
from taskraft_replication.peers.security import PeerSecurity

_OPENING_BYTES: Final = len(MAGIC) + 1
NEW_CONNECTIONS_MAX: Final = 64
"""Maximum number of connections without a ticket or call; several times the number that a large
group needs."""
NEW_SECONDS_MAX: Final = 10.0
"""Maximum time until a connection must show its ticket or make a call: several round trips."""
WARNING_SECONDS: Final = 10.0
"""Minimum time between two warnings about new connections."""
CONNECTIONS_MAX: Final = 1024
"""Default of the maximum number of connections; each connection takes up to three file
descriptors."""

_log = logging.getLogger(__name__)


ENDING_TURNS: Final = 4
"""Number of event loop iterations after which a connection that was just accepted is closed for
certain.
"""


class PeerPort:
    """The port on which peers connect.

    A connection is new until it has shown a valid ticket, or until gRPC has received a call on it.
    With certificates, only nodes can get a ticket or make a call.

    Args:
        tickets: valid tickets of frame connections.
        security: certificates of the nodes; None: frame connections are not encrypted.
        connections_max: maximum number of connections; further connections are closed.
    """

    def __init__(
        self,
        tickets: ConnectionTickets,
        security: PeerSecurity | None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._tickets = tickets
        self._security = security
        self._connections_max = connections_max
        self.new_connections = NewConnections(NEW_CONNECTIONS_MAX, NEW_SECONDS_MAX)
        self._without_call: dict[int, asyncio.Transport] = {}
        """Forwarded connections without a call so far, by the local port of their connection to
        gRPC."""
        self._server: asyncio.Server | None = None
        self._grpc_port = 0
        self._open: set[asyncio.Transport] = set()
        self._connections: WeakSet[asyncio.Transport] = WeakSet()
        """All connections that ``end`` must close, including the connections to gRPC."""
        self._background = Background()
        self._warn_from = 0.0
        """Event loop time of the earliest next warning."""
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
                lambda: _NewConnection(self),
                host.strip("[]"),
                int(port),
                backlog=ACCEPTS_PER_TURN,
            )
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
        lengthen_backlog(self._server)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def shut(self) -> None:
        """Stop listening; open connections stay open."""
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener)
        # A connection that is accepted in this iteration of the event loop is set up in the next
        # iteration. If the server is closed by then, the setup fails and the connection stays open
        # (CPython gh-109564, before 3.13).
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
        if self._ended or len(self._open) >= self._connections_max:
            transport.abort()
            return
        self._open.add(transport)
        self._connections.add(transport)
        self.new_connections.add(transport)

    def ended(self, transport: asyncio.Transport) -> None:
        """Record that a connection is closed."""
        self._open.discard(transport)
        self.new_connections.remove(transport)

    def call_arrived(self, caller: str) -> None:
        """Record that gRPC has received a call from the address ``caller``.

        With certificates, the caller is a node, because gRPC has checked its certificate.
        """
        transport = self._without_call.pop(int(caller.rpartition(":")[2]), None)
        if transport is not None:
            self.new_connections.remove(transport)

    def serve_plain(self, transport: asyncio.Transport, opening: bytes) -> None:
        """Use a plain connection for frames; ``opening`` has the bytes that follow its header."""
        if self._security is not None:
            # With certificates, tickets are issued to authenticated nodes only and must not travel
            # unencrypted.
            transport.abort()
            return
        receiver = self._receiver(transport)
        transport.set_protocol(receiver)
        receiver.data_received(opening)
        receiver.connection_made(transport)

    def serve_encrypted(self, transport: asyncio.Transport) -> None:
        """Use a connection for frames once TLS is negotiated."""
        if self._security is None:
            transport.abort()
            return
        self._background.start(self._encrypt(transport, self._security))

    def forward_to_grpc(self, transport: asyncio.Transport, opening: bytes) -> None:
        """Forward a connection that began with ``opening`` to gRPC."""
        transport.pause_reading()
        self._background.start(self._pass_on(transport, opening))

    def _receiver(self, transport: asyncio.Transport) -> FrameReceiver:
        return FrameReceiver(
            self._tickets,
            on_known=lambda: self.new_connections.remove(transport),
            on_end=lambda: self.ended(transport),
        )

    async def _encrypt(self, transport: asyncio.Transport, security: PeerSecurity) -> None:
        receiver = self._receiver(transport)
        try:
            transport.write(READY)
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                receiver,
                security.server_context(),
                server_side=True,
                ssl_handshake_timeout=BEGIN_SECONDS,
            )
            if encrypted is None:
                raise ConnectionAbortedError("closed by this member")
            receiver.node = security.node_behind(encrypted)
        except (OSError, PeerRefused) as error:
            self._warn(f"TLS handshake of a frame connection failed: {error}")
            transport.abort()
            self.ended(transport)
            return
        receiver.connection_made(encrypted)

    async def _pass_on(self, transport: asyncio.Transport, opening: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            inner, _ = await loop.create_connection(
                lambda: ByteForwarder(transport, lambda: None), "127.0.0.1", self._grpc_port
            )
        except OSError as error:
            self._warn(f"cannot connect to the local gRPC server: {error}")
            transport.abort()
            return
        self._connections.add(inner)
        inner_port = inner.get_extra_info("sockname")[1]
        self._without_call[inner_port] = transport

        def end() -> None:
            self._without_call.pop(inner_port, None)
            self.ended(transport)

        inner.write(opening)
        outer = ByteForwarder(inner, end)
        outer.connection_made(transport)
        transport.set_protocol(outer)
        if transport.is_closing():
            end()
            inner.abort()
        else:
            transport.resume_reading()

    def _warn(self, text: str) -> None:
        """Log a warning, at a limited rate because unknown callers can cause warnings."""
        now = asyncio.get_running_loop().time()
        if now >= self._warn_from:
            self._warn_from = now + WARNING_SECONDS
            _log.warning("%s", text)


class _NewConnection(asyncio.Protocol):
    """A connection whose type is not known yet."""

    def __init__(self, port: PeerPort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._opening = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the new connection to the port."""
        # The transports of other event loops are no subclasses of asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._port.arrived(self._transport)

    def data_received(self, data: bytes) -> None:
        """Choose the protocol of the connection by its first bytes."""
        assert self._transport is not None
        self._opening += data
        opening, kind = self._opening[: len(MAGIC)], self._opening[len(MAGIC) : _OPENING_BYTES]
        if not MAGIC.startswith(opening):
            self._port.forward_to_grpc(self._transport, self._opening)
        elif kind == PLAIN:
            self._port.serve_plain(self._transport, self._opening[_OPENING_BYTES:])
        elif self._opening == MAGIC + ENCRYPTED:
            self._port.serve_encrypted(self._transport)
        elif kind:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection to the port."""
        del exc
        assert self._transport is not None
        self._port.ended(self._transport)
