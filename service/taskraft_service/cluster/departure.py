"""Remove the member of a stopping node that the operator no longer wants."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import grpc
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_replication.core.types import ConfState, MemberId, Roster
from taskraft_replication.membership.roster import was_removed
from taskraft_replication.peers.security import PeerSecurity
from taskraft_service.cluster.member_identity import MemberIdentity
from taskraft_service.cluster.member_requests import (
    ASK_PAUSE_SECONDS,
    RETRYABLE,
    other_addresses,
    send_remove_member,
)
from taskraft_service.cluster.wanted_size import WantedSizeInvalid, excess_size
from taskraft_service.config.addresses import ordinal_of

log: Final = structlog.get_logger(__name__)

LEAVE_SECONDS: Final = 20.0
"""Maximum time in which a stopping node removes its member."""
FINAL: Final = frozenset({grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED})
"""Status codes after which the node stops asking."""
STAYS: Final = "the node stays a member"
LEFT_BEHIND: Final = "run `taskraft cluster remove` with the name of this node"
NO_OTHER_VOTER: Final = "no other member votes"
MEMBERS_UNKNOWN: Final = "the node has not received the membership yet"


class Departure:
    """Removes this member from the cluster while its node stops, if its ordinal is not wanted.

    The leader removes one member at a time, and none without which the remaining voters would have
    no majority. The member acknowledges entries until the cluster has removed it. So nodes that
    stop at the same time leave one after the other.

    Args:
        replicas_file: file with the wanted number of nodes; None: the node stays a member.
        identity: identity of this node.
        membership: returns the membership as this node knows it.
        hand_over: transfers the leadership to a member, if this node leads; None: to any member.
        security: with certificates, requests go to the peer ports.
    """

    def __init__(
        self,
        replicas_file: Path | None,
        identity: MemberIdentity,
        membership: Callable[[], ConfState],
        hand_over: Callable[[MemberId | None], Awaitable[None]],
        security: PeerSecurity | None,
    ) -> None:
        self._file = replicas_file
        self._wanted: int | None = None
        self._own = identity.member
        self._request = pb.RemoveMemberRequest(
            name=identity.member.name,
            directory_id=identity.directory_id,
            request_id=str(uuid.uuid4()),
        )
        self._membership = membership
        self._hand_over = hand_over
        self._security = security
        self._refusal = "no member has answered"
        self._is_answered = False

    async def run(self) -> None:
        """Remove this member if its ordinal is not wanted.

        If the cluster does not remove the member in ``LEAVE_SECONDS``, the member stays, and the
        process log has the reason.
        """
        if not await self._is_excess():
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                is_removed = await self._leave()
        except TimeoutError:
            is_removed = False
        if is_removed:
            log.warning(
                "the node has left its cluster", member=self._own.member_id, wanted=self._wanted
            )
        elif self._wanted is not None:
            log.warning(STAYS, wanted=self._wanted, reason=self._refusal, advice=LEFT_BEHIND)

    async def _leave(self) -> bool:
        """Ask the other members in turn; return False if the member stays for good.

        The leadership goes to a member that stays. Two stopping nodes could otherwise transfer it
        to each other again and again.
        """
        for attempt in count():
            membership = self._membership()
            if was_removed(membership.roster, MemberId(self._own.member_id)):
                return True
            staying = _staying_voters(membership, self._wanted)
            await self._hand_over(staying[attempt % len(staying)] if staying else None)
            if set(membership.voters) <= {self._own.member_id}:
                self._refusal = NO_OTHER_VOTER if membership.voters else MEMBERS_UNKNOWN
                return False
            is_removed = await self._ask_all(membership.roster)
            if is_removed is not None:
                return is_removed
            await asyncio.sleep(ASK_PAUSE_SECONDS)
        raise AssertionError("there is always another attempt")

    async def _is_excess(self) -> bool:
        """Return whether the ordinal of this node is not below the number in the file.

        The file is read before each request, because the operator may raise the number again while
        the node waits for its turn.
        """
        before = self._wanted
        try:
            self._wanted = await asyncio.to_thread(excess_size, self._own.name, self._file)
        except WantedSizeInvalid as error:
            self._wanted = None
            log.warning(STAYS, reason=str(error))
        else:
            if before is not None and self._wanted is None:
                log.warning(STAYS, reason="the node is wanted again", before=before)
        return self._wanted is not None

    async def _ask_all(self, roster: Roster) -> bool | None:
        """Ask the other members in turn; return None if the node must ask again."""
        has_certificates = self._security is not None
        own_id = self._own.member_id
        for address in other_addresses(roster, own_id, has_certificates=has_certificates):
            if not await self._is_excess():
                return False
            is_removed = await self._ask(address)
            if is_removed is not None:
                return is_removed
        return None

    async def _ask(self, address: str) -> bool | None:
        """Ask one member; return whether this member was removed, or None to ask the next one."""
        try:
            await send_remove_member(address, self._request, self._security)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return True
            is_answer = error.code() not in RETRYABLE
            if is_answer or not self._is_answered:  # a stopped member does not hide the reason
                self._refusal, self._is_answered = f"{address}: {error.details()}", is_answer
            log.info("not removed yet", asked=address, reason=error.details())
            return False if error.code() in FINAL else None
        return True


def _staying_voters(membership: ConfState, wanted: int | None) -> Sequence[MemberId]:
    """Return the voters that are wanted; a name without an ordinal is wanted."""
    ordinals = {info.member: ordinal_of(info.name) for info in membership.roster.members}
    return [
        voter
        for voter in membership.voters
        if wanted is None or (ordinal := ordinals.get(voter)) is None or ordinal < wanted
    ]
