"""Ask the known members whether a node is a member that this node does not know yet.

The roster of a member that was down may lack newer members, one of which may lead. A certificate
of the authority alone does not prove a membership, so a known member must vouch for such a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from grpc import aio

from taskraft_replication.core.types import MemberId, MemberInfo, Roster
from taskraft_replication.errors import PeerRefused
from taskraft_replication.membership.roster import find, is_named
from taskraft_replication.peers.grpc_peers import CHANNEL_OPTIONS, GrpcPeers
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.stubs.raft.v1.raft_pb2_grpc import PeerServiceStub

ANSWER_SECONDS: Final = 2.0
"""Maximum time for the answer of one member, in seconds."""
KEPT_MAX: Final = 64
"""Maximum number of nodes for which a member has vouched, and which the roster lacks."""


class MemberUnproven(PeerRefused):
    """No known member has vouched for a node; a later attempt may succeed."""


def is_known(roster: Roster, member: MemberId, node: str) -> bool:
    """Return whether the roster has the member, or another member of the same node.

    The roster of a node that joins is empty until the leader has sent the first entries.
    """
    return (
        not roster.members
        or find(roster, member) is not None
        or any(is_named(info, node) for info in roster.members)
    )


class Vouching:
    """Checks the unknown members of all groups.

    One check runs at a time, because only holders of a certificate cause checks.

    Args:
        security: certificates of the nodes.
    """

    def __init__(self, security: PeerSecurity) -> None:
        self._security = security
        self._checking = asyncio.Lock()
        self._proven: dict[tuple[int, MemberId, str], None] = {}
        """Group, member and node of the checks that have succeeded."""

    async def check(self, group_id: int, member: MemberId, node: str, peers: GrpcPeers) -> None:
        """Check that a node is a member, by the roster or by the word of a known member.

        Raises:
            MemberUnproven: no known member knows the node as this member.
        """
        proven = (group_id, member, node)
        if is_known(peers.roster, member, node) or proven in self._proven:
            return
        async with self._checking:
            others = [
                info
                for info in peers.roster.members
                if info.member != peers.membership.member_id and info.peer_address
            ]
            request = pb.DescribeMemberRequest(group_id=group_id, member=member)
            if not await self._is_vouched_for(request, node, others):
                raise MemberUnproven(
                    f"this node does not know member {member} ({node}), and no member that it"
                    f" knows has vouched for that node"
                )
            if len(self._proven) >= KEPT_MAX:
                self._proven.clear()
            self._proven[proven] = None

    async def _is_vouched_for(
        self, request: pb.DescribeMemberRequest, node: str, others: Iterable[MemberInfo]
    ) -> bool:
        """Return whether one of the others knows the node, as soon as one answers so."""
        asked = [asyncio.ensure_future(self._ask(request, node, other)) for other in others]
        try:
            for answer in asyncio.as_completed(asked):
                if await answer:
                    return True
        finally:
            for each in asked:
                each.cancel()
        return False

    async def _ask(self, request: pb.DescribeMemberRequest, node: str, other: MemberInfo) -> bool:
        channel = self._security.channel(other.peer_address, other.name, CHANNEL_OPTIONS)
        async with channel:
            try:
                answer = await PeerServiceStub(channel).DescribeMember(
                    request, timeout=ANSWER_SECONDS
                )
            except aio.AioRpcError:
                return False  # the member does not know the node, or does not answer
        found: bool = answer.member.name.lower() == node.lower()
        return found
