"""Send the requests of a node about itself to the other nodes of its cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import cluster_service_pb2_grpc
from taskraft_replication.core.types import Roster
from taskraft_replication.peers.security import PeerSecurity

ASK_SECONDS: Final = 5.0
"""Maximum time of one request, in seconds."""
ASK_PAUSE_SECONDS: Final = 0.5
"""Pause between two requests, in seconds."""
RETRYABLE: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
"""Status codes after which a repeated request may succeed."""


async def send_add_member(
    address: str, request: pb.AddMemberRequest, security: PeerSecurity | None
) -> int:
    """Send the request to one node, which forwards it to the leader; return the member id.

    Raises:
        grpc.aio.AioRpcError: the node refused or did not answer.
    """
    async with cluster_service(address, security) as stub:
        answer: pb.AddMemberResponse = await stub.AddMember(request, timeout=ASK_SECONDS)
    return answer.member.id


@asynccontextmanager
async def cluster_service(
    address: str, security: PeerSecurity | None
) -> AsyncIterator[cluster_service_pb2_grpc.ClusterServiceAsyncStub]:
    """Open a channel to a node, and yield the stub of its ClusterService."""
    channel = (
        grpc.aio.insecure_channel(address)
        if security is None
        else security.channel(address, "", ())
    )
    async with channel:
        yield cluster_service_pb2_grpc.ClusterServiceStub(channel)


def other_addresses(roster: Roster, own_id: int, *, has_certificates: bool) -> Sequence[str]:
    """Return the addresses of the other members; with certificates, those of their peer ports."""
    others = [info for info in roster.members if info.member != own_id]
    return [info.peer_address if has_certificates else info.client_address for info in others]
