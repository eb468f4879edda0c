"""Send the requests of a node about itself to the other nodes of its cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

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


_STATUS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata with the ``google.rpc.Status`` of a refused call."""

Stub: TypeAlias = "cluster_service_pb2_grpc.ClusterServiceAsyncStub"
Answer = TypeVar("Answer")


async def send_add_member(
    address: str, request: pb.AddMemberRequest, security: PeerSecurity | None
) -> int:
    """Send the request to one node, or to the leader that the node names; return the member id.

    Raises:
        grpc.aio.AioRpcError: the node refused or did not answer.
    """
    answer: pb.AddMemberResponse = await ask(
        address, security, lambda stub: stub.AddMember(request, timeout=ASK_SECONDS)
    )
    return answer.member.id


async def send_promote_member(
    address: str, request: pb.PromoteMemberRequest, security: PeerSecurity | None
) -> None:
    """Send the request to one node, or to the leader that the node names.

    Raises:
        grpc.aio.AioRpcError: the node refused or did not answer.
    """
    await ask(address, security, lambda stub: stub.PromoteMember(request, timeout=ASK_SECONDS))


async def send_remove_member(
    address: str, request: pb.RemoveMemberRequest, security: PeerSecurity | None
) -> None:
    """Send the request to one node, or to the leader that the node names.

    Raises:
        grpc.aio.AioRpcError: the node refused or did not answer.
    """
    await ask(address, security, lambda stub: stub.RemoveMember(request, timeout=ASK_SECONDS))


async def ask(
    address: str,
    security: PeerSecurity | None,
    call: Callable[[Stub], grpc.aio.UnaryUnaryCall[Any, Answer]],
) -> Answer:
    """Call one node; if it does not lead and forwards no calls of nodes, call the leader.

    With certificates, the leader must see the certificate of this node, so no node forwards.

    Raises:
        grpc.aio.AioRpcError: the node refused or did not answer.
    """
    try:
        async with _cluster_service(address, security) as stub:
            return await call(stub)
    except grpc.aio.AioRpcError as error:
        leader = "" if security is None else _leader_in(error)
        if leader in ("", address):
            raise
    async with _cluster_service(leader, security) as stub:
        return await call(stub)


def _leader_in(error: grpc.aio.AioRpcError) -> str:
    """Return the address of the leader in the details of an error; empty: the error has none."""
    for key, packed in error.trailing_metadata() or ():
        if key != _STATUS_KEY or not isinstance(packed, bytes):
            continue
        for detail in status_pb2.Status.FromString(packed).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.reason == "NOT_LEADER":
                return info.metadata.get("leader", "")
    return ""


@asynccontextmanager
async def _cluster_service(address: str, security: PeerSecurity | None) -> AsyncIterator[Stub]:
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
