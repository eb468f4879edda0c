"""Find out which member of its cluster this node is; ask the cluster for a number if it is new."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

import grpc
import grpc.aio
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import cluster_service_pb2_grpc
from taskraft_replication.errors import DirectoryForeign
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.storage.stored_member import stored_member
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.config.server_config import ServerConfig

log: Final = structlog.get_logger(__name__)

GROUP_ID: Final = 0
"""The Raft group of the cluster; there is one as yet."""
ASK_SECONDS: Final = 5.0
ASK_PAUSE_SECONDS: Final = 0.5
RETRYABLE: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
"""What a node answers that may answer otherwise later."""


class JoinRefused(Exception):
    """The cluster does not take this node, or does not answer; one line says why."""


@dataclass(slots=True, frozen=True)
class MemberIdentity:
    """What this node is in its cluster."""

    member: PeerAddress
    """Itself."""
    founders: Sequence[PeerAddress]
    """All members of a cluster that this node founds, itself included; empty if it has joined."""
    directory_id: str = ""
    """Identity of its data directory, by which the others know it."""

    @property
    def is_joining(self) -> bool:
        """Tell whether the node has joined a cluster that existed."""
        return not self.founders


async def resolve_member_identity(
    config: ServerConfig, security: PeerSecurity | None = None
) -> MemberIdentity:
    """Return what this node is: by its data, else by its settings, else by asking the cluster.

    The data directory must be claimed. With certificates a node asks at the port for peers, where
    its own says that it speaks for itself.

    Raises:
        JoinRefused: the cluster does not take this node.
        DirectoryForeign: the data is of a member of another name or cluster.
    """
    stored = await asyncio.to_thread(stored_member, config.data_dir, GROUP_ID)
    own = config.member
    if stored.identity is not None and stored.has_joined:
        if stored.identity.cluster_id != config.cluster_id:
            raise DirectoryForeign(
                f"{config.data_dir} belongs to cluster_id {stored.identity.cluster_id!r}, "
                f"not to {config.cluster_id!r}"
            )
        member = replace(own, member_id=stored.identity.member_id)
        return MemberIdentity(member, (), stored.directory_id)
    if stored.identity is None and config.join:
        request = add_member_request(config, MemberIdentity(own, (), stored.directory_id))
        member_id = await _ask(config, request, security)
        return MemberIdentity(replace(own, member_id=member_id), (), stored.directory_id)
    return MemberIdentity(own, config.members, stored.directory_id)


def add_member_request(config: ServerConfig, place: MemberIdentity) -> pb.AddMemberRequest:
    """Return the request by which a node becomes a member, or says where it is."""
    return pb.AddMemberRequest(
        name=place.member.name,
        peer_address=place.member.peer_address,
        address=place.member.client_address,
        directory_id=place.directory_id,
        cluster_id=config.cluster_id,
        request_id=str(uuid.uuid4()),
    )


async def _ask(
    config: ServerConfig, request: pb.AddMemberRequest, security: PeerSecurity | None
) -> int:
    """Ask one node of the cluster after the other for a number, until the time is over."""
    until = asyncio.get_running_loop().time() + config.join_wait_ms / 1000
    for address in cycle(config.join_addresses):
        try:
            member_id = await send_add_member(address, request, security)
        except grpc.aio.AioRpcError as error:
            reason = f"{address}: {error.details()}"
            if error.code() not in RETRYABLE or asyncio.get_running_loop().time() > until:
                raise JoinRefused(f"cannot join the cluster: {reason}") from error
            log.info("asks again to join", reason=reason)
        else:
            log.info("joins", member=member_id, name=request.name)
            return member_id
        await asyncio.sleep(ASK_PAUSE_SECONDS)
    raise AssertionError("there is always another address")


async def send_add_member(
    address: str, request: pb.AddMemberRequest, security: PeerSecurity | None
) -> int:
    """Ask one node, which asks the leader; return the number of the member.

    Raises:
        grpc.aio.AioRpcError: it refuses, or does not answer.
    """
    channel = (
        grpc.aio.insecure_channel(address)
        if security is None
        else security.channel(address, "", ())
    )
    async with channel:
        stub = cluster_service_pb2_grpc.ClusterServiceStub(channel)
        answer: pb.AddMemberResponse = await stub.AddMember(request, timeout=ASK_SECONDS)
    return answer.member.id
