"""Hold the certificates and principals of a node, and reload their files when they change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import grpc
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from taskraft_replication.errors import PeerRefused
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.tls.files import CurrentTls
from taskraft_service.access.authenticator import (
    OPEN_AUTHENTICATOR,
    Authenticator,
    CallContext,
    ClientAuthenticator,
    PeerAuthenticator,
    Trust,
)
from taskraft_service.access.caller import Unauthenticated
from taskraft_service.access.permissions import Verb
from taskraft_service.access.reloaded_principals import ReloadedPrincipals
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.queue.entities.bulk_sweep import BulkSweep

RELOAD_CHECK_SECONDS: Final = 1.0
"""Interval between checks of the files. Files that Kubernetes mounts change without a signal. The
streams, waits and sessions of a revoked principal or an expired certificate end within 2 s."""


class PeerServices(grpc.GenericRpcHandler):
    """Services on the peer port, which opens before the services exist."""

    def __init__(self) -> None:
        self.handlers: Sequence[grpc.GenericRpcHandler] = ()

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Return the handler of a method; None if no service has the method."""
        for handler in self.handlers:
            found = handler.service(handler_call_details)
            if found is not None:
                return found
        return None


class NodeSecurity:
    """Certificates and principals of a node.

    Args:
        config: names the files.

    Raises:
        TlsUnusable, AccessFileInvalid: one of the files is unusable.
    """

    def __init__(self, config: ServerConfig) -> None:
        client, peer = config.client_tls, config.peer_tls
        self.client = None if client is None else CurrentTls(client)
        self.peer = (
            None if peer is None else PeerSecurity(peer, config.cluster_id, config.node_name)
        )
        path = config.access_file
        self.principals = None if path is None else ReloadedPrincipals(path)
        self.reflects = config.reflects
        self.peer_services = PeerServices()

    @property
    def client_authenticator(self) -> Authenticator:
        """The authenticator of the client port."""
        if self.principals is None:
            return OPEN_AUTHENTICATOR
        return ClientAuthenticator(self.principals)

    def peer_authenticator(self, trust_of: Callable[[str], Trust]) -> Authenticator | None:
        """Return the authenticator of the peer port; None without TLS between nodes.

        Without TLS between nodes the peer port serves no client calls.
        """
        peer = self.peer
        if peer is None:
            return None

        def node_of(context: CallContext) -> str:
            try:
                return peer.node_of(context.auth_context())
            except PeerRefused as error:
                raise Unauthenticated(str(error)) from error

        return PeerAuthenticator(self.principals, node_of, trust_of)

    def may_take(self, name: str, tube: str) -> bool:
        """Return whether a principal may take from a tube, or from any for ``ANY_TUBE``."""
        if self.principals is None:
            return True
        principal = self.principals.principals.principal(name)
        return principal is not None and principal.permissions.allow(Verb.TAKE, tube)

    def refusal_of_bulk_sweep(self, sweep: BulkSweep) -> str:
        """Return why the principal of a bulk sweep may not continue it; empty: it may."""
        if self.principals is None:
            return ""
        request = sweep.request
        principal = self.principals.principals.principal(request.principal)
        if principal is None or not principal.permissions.allow(Verb.MANAGE, request.tube):
            return f'NOT_ALLOWED: "{request.principal}" may not manage "{request.tube}" any more'
        if request.move_to and not principal.permissions.allow(Verb.PUT, request.move_to):
            return f'NOT_ALLOWED: "{request.principal}" may not put to "{request.move_to}" any more'
        return ""

    def refresh(self, *, always: bool = False) -> bool:
        """Reload changed files; return whether channels to peers need new credentials.

        Args:
            always: reload the access file even if it looks unchanged.
        """
        if self.principals is not None:
            self.principals.refresh(always=always)
        if self.client is not None:
            self.client.refresh()
        return self.peer is not None and self.peer.current.refresh()

    async def watch_files(
        self, peers_renewed: Callable[[], None], end_expired: Callable[[float], None]
    ) -> None:
        """Reload changed files periodically, until cancelled.

        Args:
            peers_renewed: called when channels to peers need new credentials.
            end_expired: called in each period with the seconds since the Unix epoch; ends the
                calls of expired certificates.
        """
        while True:
            await asyncio.sleep(RELOAD_CHECK_SECONDS)
            if self.refresh():
                peers_renewed()
            end_expired(time.time())


class CertificateCollector(Collector):
    """Prometheus collector of the expiry times of the certificates in force."""

    def __init__(self, security: NodeSecurity) -> None:
        self._security = security

    def collect(self) -> Iterator[Metric]:
        """Yield one series per port that has a certificate."""
        family = GaugeMetricFamily(
            "taskraft_certificate_expires_timestamp_seconds",
            "When the certificate of a port expires.",
            labels=["port"],
        )
        peer = self._security.peer
        ports = {"client": self._security.client, "peer": None if peer is None else peer.current}
        for port, current in ports.items():
            if current is not None:
                family.add_metric([port], current.tls.expires_at.timestamp())
        yield family
