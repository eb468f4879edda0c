"""Build the grpc.aio server: handlers, health, reflection, and limits of connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from taskraft_service.leader.node_phases import NodePhase
from taskraft_service.limits import MESSAGE_BYTES_MAX

EVERYTHING: Final = ""
TASK_SERVICE: Final = "taskraft.v1.TaskService"
READY: Final = "taskraft.ready"
LEADER: Final = "taskraft.leader"

HEALTH_CALLS_MAX: Final = 1_000
"""Maximum number of calls and watches of the health and reflection services, in addition to all
other calls."""
METADATA_BYTES_MAX: Final = 8 * 1024
CALLS_PER_CONNECTION_MAX: Final = 128
"""Maximum number of concurrent calls on a connection of a client. The limit keeps one connection
from filling the event loop and delaying the calls of others. Further calls wait at the client; gRPC
refuses some of them if a client stays at the maximum for long."""
PING_MS: Final = 10_000
"""Half the idle time after which the server pings a connection, and the maximum wait for the reply,
in ms."""
CLIENT_PING_MS_MIN: Final = 250
"""Minimum interval between keepalive pings of a client, in ms, with and without calls in progress.
The server closes the connection of a client that pings more often, with ENHANCE_YOUR_CALM
(too_many_pings)."""
HANDSHAKE_MS: Final = 10_000
"""Maximum time in ms for TLS and the first bytes of HTTP/2, and again for the reply to the server's
HTTP/2 settings. gRPC's defaults are two minutes and one minute."""

IDLE_MS: Final = 300_000
"""Maximum idle time of a connection without a call, in ms; gRPC clients connect again. There is no
maximum age of a connection, because it would end the streams of consumers."""

_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    (
        "grpc.max_receive_message_length",
        2 * MESSAGE_BYTES_MAX,
    ),  # the endpoint checks the exact limit
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    # Between the two limits, gRPC refuses calls at random; by default, this limit is 16 KiB.
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.keepalive_time_ms", 2 * PING_MS),
    ("grpc.keepalive_timeout_ms", PING_MS),
    ("grpc.http2.ping_timeout_ms", PING_MS),  # otherwise gRPC waits for up to 60 s
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_PING_MS_MIN),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.http2.settings_timeout", HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
)


class PortTaken(Exception):
    """The server cannot listen on an address; the text names the address."""


class Health:
    """The statuses of the standard health service."""

    def __init__(self) -> None:
        self.servicer = health.aio.HealthServicer()

    async def phase_changed(self, phase: NodePhase, *, ready: bool) -> None:
        """Set the statuses that follow from the phase of this node."""
        await self._set(EVERYTHING, serving=True)
        await self._set(TASK_SERVICE, serving=phase is not NodePhase.INIT)
        await self._set(READY, serving=ready)
        await self._set(LEADER, serving=phase is NodePhase.RUNNING)

    async def stop(self) -> None:
        """Set all statuses to NOT_SERVING permanently."""
        await self.servicer.enter_graceful_shutdown()

    async def _set(self, name: str, *, serving: bool) -> None:
        statuses = health_pb2.HealthCheckResponse
        status = statuses.SERVING if serving else statuses.NOT_SERVING
        await self.servicer.set(name, status)


def build_server(
    handlers: Sequence[grpc.GenericRpcHandler],
    health_says: Health,
    concurrent_max: int,
    connections_max: int,
    per_connection_max: int = CALLS_PER_CONNECTION_MAX,
) -> grpc.aio.Server:
    """Return a server with some services and the health service; it does not listen yet.

    gRPC refuses calls above ``concurrent_max`` without a reason, so ``concurrent_max`` is higher
    than the limits of the endpoint. ``concurrent_max`` also limits the calls that wait for the
    event loop: with gRPC's default of 1 000, gRPC would cancel some calls of a burst without a
    reason. gRPC closes connections above ``connections_max``. Calls above ``per_connection_max`` on
    one connection wait at the caller.

    The health service needs no credentials, because it reveals nothing about tasks.
    """
    calls_max = concurrent_max + HEALTH_CALLS_MAX
    server = grpc.aio.server(
        options=(
            *_OPTIONS,
            ("grpc.max_concurrent_streams", per_connection_max),
            ("grpc.max_allowed_incoming_connections", connections_max),
            ("grpc.server.max_pending_requests", calls_max),
            ("grpc.server.max_pending_requests_hard_limit", calls_max),
        ),
        maximum_concurrent_rpcs=calls_max,
    )
    server.add_generic_rpc_handlers(tuple(handlers))
    health_pb2_grpc.add_HealthServicer_to_server(health_says.servicer, server)
    return server


def enable_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Enable gRPC reflection for some services."""
    names = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)


def listen(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None
) -> int:
    """Bind the server to an address; return the port.

    Raises:
        PortTaken: the address is in use or invalid.
    """
    try:
        port: int = (
            server.add_insecure_port(address)
            if credentials is None
            else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise PortTaken(
            f"cannot listen on {address}: the address is in use or not available"
        ) from error
    if port == 0:
        raise PortTaken(f"cannot listen on {address}: the address is in use or not available")
    return port
