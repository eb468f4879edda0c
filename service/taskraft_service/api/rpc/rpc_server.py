"""Define the gRPC server of a port: its limits, and the interface that implementations have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from taskraft_replication.tls.files import CurrentTls
from taskraft_service.limits import MESSAGE_BYTES_MAX

HEALTH_CALLS_MAX: Final = 1_000
"""Maximum number of calls and watches of the health and reflection services, in addition to all
other calls."""
METADATA_BYTES_MAX: Final = 8 * 1024
CALLS_PER_CONNECTION_MAX: Final = 128
"""Maximum number of concurrent calls on a connection of a client. The limit keeps one connection
from filling the event loop and delaying the calls of others. Further calls wait at the client; gRPC
refuses some of them if a client stays at the maximum for long."""


@dataclass(slots=True, frozen=True)
class ServerLimits:
    """Limits of a gRPC server; the times are in ms."""

    calls_max: int
    """Maximum number of concurrent calls. The server refuses further calls without a reason, so
    this limit is higher than the limits of the endpoint."""
    connections_max: int
    """Maximum number of connections; the server closes further connections."""
    calls_per_connection_max: int = CALLS_PER_CONNECTION_MAX
    metadata_bytes_max: int = METADATA_BYTES_MAX
    received_bytes_max: int = 2 * MESSAGE_BYTES_MAX
    """Maximum size of a received message; the endpoint checks the exact limit."""
    sent_bytes_max: int = MESSAGE_BYTES_MAX
    unfinished_unknown_bytes_max: int = MESSAGE_BYTES_MAX
    """Bytes that unfinished messages may hold together on connections on which nobody has been
    authenticated. Only the native edge has this limit, and the next four."""
    unfinished_small_bytes_max: int = 2 * MESSAGE_BYTES_MAX
    """Bytes that unfinished messages of at most 64 KiB may hold together on other connections."""
    unfinished_bytes_max: int = 4 * MESSAGE_BYTES_MAX
    """Bytes that all unfinished messages for which handlers wait may hold together."""
    stall_ms: int = 20_000
    """Maximum time without a byte of a message that has begun, or of the request of a unary call.
    """
    unresponsive_ms: int = 5_000
    """Maximum time for which received calls wait for the event loop. While they wait longer, the
    server refuses further calls with UNAVAILABLE, so that clients use another node."""
    ping_ms: int = 10_000
    """Half the idle time after which the server pings a connection, and the maximum wait for the
    reply."""
    client_ping_ms_min: int = 250
    """Minimum interval between keepalive pings of a client, with and without calls in progress. The
    server closes the connection of a client that pings more often, with ENHANCE_YOUR_CALM
    (too_many_pings)."""
    handshake_ms: int = 10_000
    """Maximum time for TLS and the first bytes of HTTP/2, and again for the reply to the server's
    HTTP/2 settings. The defaults of gRPC are two minutes and one minute."""
    idle_ms: int = 300_000
    """Maximum idle time of a connection without a call; clients of gRPC connect again. There is no
    maximum age of a connection, because it would end the streams of consumers."""


@dataclass(slots=True, frozen=True)
class ServerCounts:
    """What a server counts for the metrics."""

    in_use: Mapping[str, int]
    """Connections, calls, and bytes of unfinished messages that the server holds now."""
    limited: Mapping[str, int]
    """How often each limit has acted since the start, by its name."""


class PortTaken(Exception):
    """The server cannot listen on an address; the text names the address."""

    def __init__(self, address: str) -> None:
        super().__init__(f"cannot listen on {address}: the address is in use or not available")


class RpcServer(Protocol):
    """Serves a table of methods on one port."""

    def listen(self, address: str, tls: CurrentTls | None = None) -> int:
        """Bind the server to an address; return the port.

        Args:
            address: host and port; the port 0 means any free port.
            tls: certificates of the port; None: without TLS.

        Raises:
            PortTaken: the address is in use or invalid.
        """

    async def start(self) -> None:
        """Start to accept connections."""

    async def stop(self, grace_seconds: float) -> None:
        """Accept no further call, wait for the calls in progress, then cancel them."""

    def counts(self) -> ServerCounts | None:
        """Return what the server counts; None: the server does not count."""
