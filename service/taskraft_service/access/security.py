"""Hold what decides who may connect to a node and what they may do, and keep it up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import grpc

from taskraft_replication.errors import PeerRefused
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.tls.files import CurrentTls
from taskraft_service.access.authenticator import (
    OPEN_AUTHENTICATOR,
    Authenticator,
    ClientAuthenticator,
    Context,
    PeerAuthenticator,
)
from taskraft_service.access.denial import Unauthenticated
from taskraft_service.access.reloaded_principals import ReloadedPrincipals
from taskraft_service.config.server_config import ServerConfig

RELOAD_CHECK_SECONDS: Final = 5.0
"""How often files are looked at. Those that Kubernetes mounts change without any signal."""


class PeerServices(grpc.GenericRpcHandler):
    """Services on the port for peers. The port opens before they exist: it has nobody then."""

    def __init__(self) -> None:
        self.handlers: Sequence[grpc.GenericRpcHandler] = ()

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Return what serves a method, None: nothing does."""
        for handler in self.handlers:
            found = handler.service(handler_call_details)
            if found is not None:
                return found
        return None


class NodeSecurity:
    """Certificates and rights of a node.

    Args:
        config: names the files.

    Raises:
        TlsUnusable, AccessInvalid: one of the files cannot be used.
    """

    def __init__(self, config: ServerConfig) -> None:
        client, peer = config.client_tls, config.peer_tls
        self.client = None if client is None else CurrentTls(client)
        self.peer = (
            None if peer is None else PeerSecurity(peer, config.cluster_id, config.node_name)
        )
        self.rights = None if config.access_file is None else ReloadedPrincipals(config.access_file)
        self.reflects = config.reflects
        self.door = PeerServices()

    @property
    def client_gate(self) -> Authenticator:
        """What callers on the port for clients pass."""
        return OPEN_AUTHENTICATOR if self.rights is None else ClientAuthenticator(self.rights)

    def peer_gate(self, is_member: Callable[[str], bool]) -> Authenticator | None:
        """Return what callers on the port for peers pass; None: nothing is served there to them."""
        peer = self.peer
        if peer is None:
            return None

        def node_of(context: Context) -> str:
            try:
                return peer.node_of(context.auth_context())
            except PeerRefused as error:
                raise Unauthenticated(str(error)) from error

        return PeerAuthenticator(self.rights, node_of, is_member)

    def refresh(self, *, always: bool = False) -> bool:
        """Take over what has changed; tell whether channels to peers need new credentials.

        Args:
            always: read the rights also if their file looks as before.
        """
        if self.rights is not None:
            self.rights.refresh(always=always)
        if self.client is not None:
            self.client.refresh()
        return self.peer is not None and self.peer.current.refresh()

    async def keep(self, peers_renewed: Callable[[], None]) -> None:
        """Look for changes, for ever.

        Args:
            peers_renewed: opens the channels to peers anew.
        """
        while True:
            await asyncio.sleep(RELOAD_CHECK_SECONDS)
            if self.refresh():
                peers_renewed()
