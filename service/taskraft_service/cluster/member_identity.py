"""Determine which member this node is; a new node asks the cluster for a member id."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Final, Protocol

import grpc
import grpc.aio
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft.v1 import cluster_service_pb2_grpc
from taskraft_replication.errors import DirectoryForeign
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.storage.stored_member import StoredMember, stored_member
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.config.server_config import ServerConfig

log: Final = structlog.get_logger(__name__)

GROUP_ID: Final = 0
"""Id of the only Raft group of the cluster."""
ASK_SECONDS: Final = 5.0
ASK_PAUSE_SECONDS: Final = 0.5
RETRYABLE: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
"""Status codes after which a repeated request may succeed."""


class JoinRefused(Exception):
    """The cluster refused this node or did not answer; the text says why, in one line."""


@dataclass(slots=True, frozen=True)
class MemberIdentity:
    """Identity of this node in its cluster."""

    member: PeerAddress
    """This node."""
    founders: Sequence[PeerAddress]
    """All members of a cluster that this node founds, this node included; empty if it joined."""
    directory_id: str = ""
    """Id of its data directory, by which the other members recognise it."""

    @property
    def is_joining(self) -> bool:
        """Return whether the node joined an existing cluster."""
        return not self.founders


class IdentitySettings(Protocol):
    """The settings that determine the identity of a node; see ``ServerConfig``."""

    @property
    def cluster_id(self) -> str:
        """Id of the cluster."""

    @property
    def data_dir(self) -> Path:
        """The data directory."""

    @property
    def join(self) -> str:
        """Addresses of the cluster to join; empty for a founder."""

    @property
    def member(self) -> PeerAddress:
        """Name and addresses of this node."""

    @property
    def members(self) -> Sequence[PeerAddress]:
        """The founders."""


async def resolve_member_identity(
    config: ServerConfig, security: PeerSecurity | None = None
) -> MemberIdentity:
    """Return the identity of this node: from its data, otherwise its settings or the cluster.

    The data directory must be locked. With certificates, a node asks at the peer port, where its
    own certificate proves its name.

    Raises:
        JoinRefused: the cluster refused this node or did not answer.
        DirectoryForeign: the data belongs to a member of another name or cluster.
    """
    stored = await asyncio.to_thread(stored_member, config.data_dir, GROUP_ID)
    identity = known_identity(config, stored)
    if identity is not None:
        return identity
    own = MemberIdentity(config.member, (), stored.directory_id)
    member_id = await _ask(config, add_member_request(config, own), security)
    return replace(own, member=replace(own.member, member_id=member_id))


def known_identity(settings: IdentitySettings, stored: StoredMember) -> MemberIdentity | None:
    """Return the identity of a node from its data or its settings; None if it must ask the cluster.

    Raises:
        DirectoryForeign: the data belongs to another cluster.
    """
    own = settings.member
    if stored.identity is not None and stored.has_joined:
        if stored.identity.cluster_id != settings.cluster_id:
            raise DirectoryForeign(
                f"{settings.data_dir} belongs to cluster_id {stored.identity.cluster_id!r}, "
                f"not to {settings.cluster_id!r}"
            )
        member = replace(own, member_id=stored.identity.member_id)
        return MemberIdentity(member, (), stored.directory_id)
    if stored.identity is None and settings.join:
        return None
    return MemberIdentity(own, settings.members, stored.directory_id)


def add_member_request(settings: IdentitySettings, identity: MemberIdentity) -> pb.AddMemberRequest:
    """Return the request by which a node becomes a member or announces its addresses."""
    return pb.AddMemberRequest(
        name=identity.member.name,
        peer_address=identity.member.peer_address,
        address=identity.member.client_address,
        directory_id=identity.directory_id,
        cluster_id=settings.cluster_id,
        request_id=str(uuid.uuid4()),
    )


async def _ask(
    config: ServerConfig, request: pb.AddMemberRequest, security: PeerSecurity | None
) -> int:
    """Ask the nodes of the cluster in turn for a member id, for at most ``join_wait_ms``."""
    until = asyncio.get_running_loop().time() + config.join_wait_ms / 1000
    for address in cycle(config.join_addresses):
        try:
            member_id = await send_add_member(address, request, security)
        except grpc.aio.AioRpcError as error:
            reason = f"{address}: {error.details()}"
            if error.code() not in RETRYABLE or asyncio.get_running_loop().time() > until:
                raise JoinRefused(f"cannot join the cluster: {reason}") from error
            log.info("join not answered; retrying", reason=reason)
        else:
            log.info("joined the cluster", member=member_id, name=request.name)
            return member_id
        await asyncio.sleep(ASK_PAUSE_SECONDS)
    raise AssertionError("there is always another address")


async def send_add_member(
    address: str, request: pb.AddMemberRequest, security: PeerSecurity | None
) -> int:
    """Send the request to one node, which forwards it to the leader; return the member id.

    Raises:
        grpc.aio.AioRpcError: the node refused or did not answer.
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
