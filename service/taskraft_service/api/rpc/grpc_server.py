"""Serve a table of methods on grpc.aio."""

from __future__ import annotations

import grpc
import grpc.aio

from taskraft_replication.tls.files import CurrentTls
from taskraft_service.api.rpc.grpc_calls import TableHandlers
from taskraft_service.api.rpc.method_table import MethodTable
from taskraft_service.api.rpc.rpc_server import PortTaken, ServerCounts, ServerLimits


class GrpcServer:
    """The ``RpcServer`` of grpc.aio."""

    def __init__(self, table: MethodTable, limits: ServerLimits) -> None:
        self._server = grpc.aio.server(
            options=_options(limits), maximum_concurrent_rpcs=limits.calls_max
        )
        self._server.add_generic_rpc_handlers((TableHandlers(table),))

    def listen(self, address: str, tls: CurrentTls | None = None) -> int:
        """Bind the server to an address; return the port."""
        try:
            port: int = (
                self._server.add_insecure_port(address)
                if tls is None
                else self._server.add_secure_port(address, tls.server_credentials())
            )
        except RuntimeError as error:
            raise PortTaken(address) from error
        if port == 0:
            raise PortTaken(address)
        return port

    async def start(self) -> None:
        """Start to accept connections."""
        await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Accept no further call, wait for the calls in progress, then cancel them."""
        await self._server.stop(grace_seconds)

    def counts(self) -> ServerCounts | None:
        """Return None: grpc.aio does not tell which limit acted."""
        return None


def _options(limits: ServerLimits) -> tuple[tuple[str, int], ...]:
    """Return the channel arguments of gRPC.

    ``max_pending_requests`` limits the calls that wait for the event loop: with gRPC's default of
    1 000, gRPC would cancel some calls of a burst without a reason.
    """
    return (
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.received_bytes_max),
        ("grpc.max_send_message_length", limits.sent_bytes_max),
        ("grpc.max_metadata_size", limits.metadata_bytes_max),
        # Between the two limits, gRPC refuses calls at random; by default, this limit is 16 KiB.
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes_max),
        ("grpc.keepalive_time_ms", 2 * limits.ping_ms),
        ("grpc.keepalive_timeout_ms", limits.ping_ms),
        ("grpc.http2.ping_timeout_ms", limits.ping_ms),  # otherwise gRPC waits for up to 60 s
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", limits.client_ping_ms_min),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.server_handshake_timeout_ms", limits.handshake_ms),
        ("grpc.http2.settings_timeout", limits.handshake_ms),
        ("grpc.max_connection_idle_ms", limits.idle_ms),
        ("grpc.max_concurrent_streams", limits.calls_per_connection_max),
        ("grpc.max_allowed_incoming_connections", limits.connections_max),
        ("grpc.server.max_pending_requests", limits.calls_max),
        ("grpc.server.max_pending_requests_hard_limit", limits.calls_max),
    )
