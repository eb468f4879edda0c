"""Ask the cluster to promote this node to a voter, after the node has joined as a learner."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Final

import grpc
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_replication.core.types import ConfState, MemberId
from taskraft_replication.membership.roster import find
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.cluster.member_requests import other_addresses, send_promote_member

log: Final = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 1.0
"""Pause between two checks whether the node can become a voter, and between two requests."""
FINAL: Final = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
"""Status codes after which the node stops asking."""


class VoterRequest:
    """Repeats the request for promotion until this node is a voter.

    The leader promotes a learner only after it has caught up, so the node asks when it is ready. A
    node that replaces a member needs no request: the leader completes the replacement.

    Args:
        identity: identity of this node.
        membership: returns the membership as this node knows it.
        is_ready: returns whether this node has applied the log.
        security: with certificates, requests go to the peer ports.
    """

    def __init__(
        self,
        identity: MemberIdentity,
        membership: Callable[[], ConfState],
        is_ready: Callable[[], bool],
        security: PeerSecurity | None,
    ) -> None:
        self._identity = identity
        self._membership = membership
        self._is_ready = is_ready
        self._security = security

    async def run(self) -> None:
        """Ask until this node is a voter, or until the cluster refuses for good."""
        own = self._identity.member
        while own.member_id not in self._membership().voters:
            if self._may_ask() and not await self._ask():
                return
            await asyncio.sleep(PAUSE_SECONDS)

    def _may_ask(self) -> bool:
        membership = self._membership()
        info = find(membership.roster, MemberId(self._identity.member.member_id))
        return info is not None and not info.replaces and self._is_ready()

    async def _ask(self) -> bool:
        """Ask the members in turn; return False if the cluster refuses this node for good."""
        own = self._identity.member
        request = pb.PromoteMemberRequest(name=own.name, request_id=str(uuid.uuid4()))
        has_certificates = self._security is not None
        for address in other_addresses(
            self._membership().roster, own.member_id, has_certificates=has_certificates
        ):
            try:
                await send_promote_member(address, request, self._security)
            except grpc.aio.AioRpcError as error:
                if error.code() in FINAL:
                    log.warning("promotion refused", asked=address, reason=error.details())
                    return False
                log.info("not promoted yet; retrying", asked=address, reason=error.details())
            else:
                log.info("promoted to a voter", member=own.member_id, name=own.name)
                return True
        return True
