"""Report this node's changed addresses to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import grpc.aio
import structlog

from taskraft_replication.core.types import Roster
from taskraft_replication.membership.roster import find
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.cluster.cluster_members import info_of
from taskraft_service.cluster.member_identity import MemberIdentity, add_member_request
from taskraft_service.cluster.member_requests import (
    ASK_PAUSE_SECONDS,
    RETRYABLE,
    other_addresses,
    send_add_member,
)
from taskraft_service.config.server_config import ServerConfig

log: Final = structlog.get_logger(__name__)

PAUSE_SECONDS_MAX: Final = 15.0
"""Maximum delay between two attempts; each delay is twice the previous delay."""


class AddressAnnouncer:
    """Announces the addresses of a node that restarted with other addresses.

    Members connect to each other at the addresses in the roster, so without the announcement no
    member could reach this node. The change goes through the log like every membership change, and
    only the node with the member's data directory can make it.

    The roster on this node may be outdated, because it comes from the state on disk until the log
    is replayed. The announcer therefore compares the addresses after each change of the roster,
    until the process exits.

    Args:
        config: settings of the node, with its current addresses.
        identity: identity of this node.
        roster: returns the roster as this node knows it.
        security: with certificates, requests go to the peer port.
        changed: waits until the roster may have changed.
        is_accepted: returns whether a peer has accepted this process. A process with a copy of
            another process's directory announces nothing while the other process is connected.
    """

    def __init__(
        self,
        config: ServerConfig,
        identity: MemberIdentity,
        roster: Callable[[], Roster],
        security: PeerSecurity | None,
        changed: Callable[[], Awaitable[None]],
        is_accepted: Callable[[], bool],
    ) -> None:
        self._config = config
        self._identity = identity
        self._roster = roster
        self._security = security
        self._changed = changed
        self._is_accepted = is_accepted

    async def announce(self) -> None:
        """Announce this node's addresses whenever the roster has other addresses for it.

        A refusal stops the announcer: the node keeps running, and the process log has the reason.
        """
        while await self._is_settled():
            await self._changed()

    async def _is_settled(self) -> bool:
        """Ask the members in turn until the roster is correct; return False after a refusal."""
        pause_seconds = ASK_PAUSE_SECONDS
        while not self._is_known():
            for address in self._targets() if self._is_accepted() else ():
                is_believed = await self._tell(address)
                if is_believed is not None:
                    return is_believed
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
        return True

    async def _tell(self, address: str) -> bool | None:
        """Ask one member; return whether it accepted the addresses, or None without an answer."""
        request = add_member_request(self._config, self._identity)
        try:
            await send_add_member(address, request, self._security)
        except grpc.aio.AioRpcError as error:
            if error.code() in RETRYABLE:
                log.info(
                    "addresses not announced yet; retrying", asked=address, reason=error.details()
                )
                return None
            log.warning("announced addresses refused", asked=address, reason=error.details())
            return False
        log.info("announced new addresses", peer=request.peer_address, client=request.address)
        return True

    def _is_known(self) -> bool:
        """Return whether the roster has this node's addresses.

        Also return True if the node has not joined yet, because joining reports the addresses.
        """
        own = info_of(self._identity.member)
        known = find(self._roster(), own.member)
        if known is None or not known.directory_id:
            return True
        here = (own.peer_address, own.client_address)
        return (known.peer_address, known.client_address) == here

    def _targets(self) -> Sequence[str]:
        own_id, has_certificates = self._identity.member.member_id, self._security is not None
        known = other_addresses(self._roster(), own_id, has_certificates=has_certificates)
        return list(dict.fromkeys([*self._config.join_addresses, *known]))
