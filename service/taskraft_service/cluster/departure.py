"""Remove the member of a stopping node that the operator no longer wants."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final

import grpc
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_replication.core.types import ConfState, MemberId
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.cluster.member_requests import (
    ASK_PAUSE_SECONDS,
    other_addresses,
    send_remove_member,
)
from taskraft_service.cluster.wanted_size import (
    ReplicaSettings,
    WantedSizeInvalid,
    excess_size,
)
from taskraft_service.config.addresses import ordinal_of

log: Final = structlog.get_logger(__name__)

LEAVE_SECONDS: Final = 20.0
"""Maximum time in which a stopping node removes its member."""
FINAL: Final = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
"""Status codes after which the node stops asking."""
LEFT_BEHIND: Final = "run `taskraft cluster remove` with the name of this node"


class Departure:
    """Removes this member from the cluster while its node stops, if its ordinal is not wanted.

    The leader removes one member at a time, and none without which the remaining voters would have
    no majority. The member acknowledges entries until the cluster has removed it. So nodes that
    stop at the same time leave one after the other.

    Args:
        settings: the settings of this node.
        identity: identity of this node.
        membership: returns the membership as this node knows it.
        hand_over: transfers the leadership to a member, if this node leads; None: to any member.
        security: with certificates, requests go to the peer ports.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        identity: MemberIdentity,
        membership: Callable[[], ConfState],
        hand_over: Callable[[MemberId | None], Awaitable[None]],
        security: PeerSecurity | None,
    ) -> None:
        self._settings = settings
        self._own = identity.member
        self._membership = membership
        self._hand_over = hand_over
        self._security = security
        self._refusal = "no member has answered"

    async def run(self) -> None:
        """Remove this member if its ordinal is not wanted.

        If the cluster does not remove the member in ``LEAVE_SECONDS``, the member stays, and the
        process log has the reason.
        """
        try:
            wanted = await asyncio.to_thread(excess_size, self._settings)
        except WantedSizeInvalid as error:
            log.warning("the node stays a member", reason=str(error))
            return
        if wanted is None:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                is_removed = await self._leave(wanted)
        except TimeoutError:
            is_removed = False
        if is_removed:
            log.warning("the node has left its cluster", member=self._own.member_id, wanted=wanted)
        else:
            log.warning(
                "the node stays a member", wanted=wanted, reason=self._refusal, advice=LEFT_BEHIND
            )

    async def _leave(self, wanted: int) -> bool:
        """Ask the other members in turn; return False if the cluster refuses for good.

        The leadership goes to a member that stays. Two stopping nodes could otherwise transfer it
        to each other again and again.
        """
        request = pb.RemoveMemberRequest(name=self._own.name, request_id=str(uuid.uuid4()))
        for attempt in count():
            membership = self._membership()
            staying = _staying_voters(membership, wanted)
            await self._hand_over(staying[attempt % len(staying)] if staying else None)
            if set(membership.voters) <= {self._own.member_id}:
                self._refusal = "no other member votes"
                return False
            for address in other_addresses(
                membership.roster,
                self._own.member_id,
                has_certificates=self._security is not None,
            ):
                is_removed = await self._ask(address, request)
                if is_removed is not None:
                    return is_removed
            await asyncio.sleep(ASK_PAUSE_SECONDS)
        raise AssertionError("there is always another attempt")

    async def _ask(self, address: str, request: pb.RemoveMemberRequest) -> bool | None:
        """Ask one member; return whether this member was removed, or None to ask the next one."""
        try:
            await send_remove_member(address, request, self._security)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return True
            self._refusal = f"{address}: {error.details()}"
            log.info("not removed yet", asked=address, reason=error.details())
            return False if error.code() in FINAL else None
        return True


def _staying_voters(membership: ConfState, wanted: int) -> Sequence[MemberId]:
    """Return the voters that are wanted; a name without an ordinal is wanted."""
    ordinals = {info.member: ordinal_of(info.name) for info in membership.roster.members}
    return [
        voter
        for voter in membership.voters
        if (ordinal := ordinals.get(voter)) is None or ordinal < wanted
    ]
