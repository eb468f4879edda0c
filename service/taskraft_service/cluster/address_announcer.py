"""Tell the cluster where this node is, if it has moved since it was last there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import grpc.aio
import structlog

from taskraft_replication.core.types import MemberInfo, Roster
from taskraft_replication.membership.roster import find
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.cluster.cluster_members import info_of
from taskraft_service.cluster.member_identity import (
    ASK_PAUSE_SECONDS,
    RETRYABLE,
    MemberIdentity,
    add_member_request,
    send_add_member,
)
from taskraft_service.config.server_config import ServerConfig

log: Final = structlog.get_logger(__name__)

PAUSE_SECONDS_MAX: Final = 15.0
"""Longest pause between attempts; each is twice as long as the one before."""


class AddressAnnouncer:
    """Announces the addresses of a node that came back with others.

    Nobody could reach it otherwise: the members call each other where the roster says. The change
    goes through the log like every change of the members, and only the node with the member's data
    directory can make it.

    What the roster says here may be old: after a start it is that of the state on disk, until the
    log has been applied again. So each change of it is looked at, for as long as the process runs.

    Args:
        config: the node's configuration; says where it is now.
        place: which member it is.
        roster: returns who the members are, as far as this node knows.
        security: with certificates the port for peers is asked.
        changed: waits until the roster may have changed.
    """

    def __init__(
        self,
        config: ServerConfig,
        place: MemberIdentity,
        roster: Callable[[], Roster],
        security: PeerSecurity | None,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._place = place
        self._roster = roster
        self._security = security
        self._changed = changed

    async def announce(self) -> None:
        """Tell where this node is whenever the roster has other addresses of it.

        A refusal ends it: the node goes on, and the log of the process says why nobody calls it.
        """
        while await self._is_settled():
            await self._changed()

    async def _is_settled(self) -> bool:
        """Ask one member after the other until the roster is right; False: one has refused."""
        pause_seconds = ASK_PAUSE_SECONDS
        while not self._is_known():
            for address in self._targets():
                is_believed = await self._tell(address)
                if is_believed is not None:
                    return is_believed
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
        return True

    async def _tell(self, address: str) -> bool | None:
        """Ask one member; return whether it believes this node, None if it could not be asked."""
        request = add_member_request(self._config, self._place)
        try:
            await send_add_member(address, request, self._security)
        except grpc.aio.AioRpcError as error:
            if error.code() in RETRYABLE:
                log.info("cannot tell yet where it is", asked=address, reason=error.details())
                return None
            log.warning("is not believed where it is", asked=address, reason=error.details())
            return False
        log.info("moved", peer=request.peer_address, client=request.address)
        return True

    def _is_known(self) -> bool:
        """Tell whether the roster is right; a member that it does not show yet is about to join."""
        own = info_of(self._place.member)
        known = find(self._roster(), own.member)
        if known is None or not known.directory_id:
            return True
        here = (own.peer_address, own.client_address)
        return (known.peer_address, known.client_address) == here

    def _targets(self) -> Sequence[str]:
        others = [info for info in self._roster().members if not self._is_own(info)]
        own_side = self._security is not None
        known = [info.peer_address if own_side else info.client_address for info in others]
        return list(dict.fromkeys([*self._config.join_addresses, *known]))

    def _is_own(self, info: MemberInfo) -> bool:
        return info.member == self._place.member.member_id
