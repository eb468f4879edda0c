"""Determine which member this node is; a new node asks the cluster for a member id."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Final, Protocol

import grpc
import structlog

from taskraft.v1 import cluster_service_pb2 as pb
from taskraft_replication.errors import DirectoryForeign, LogDamaged, ReplicationError
from taskraft_replication.peers.security import PeerSecurity
from taskraft_replication.storage.checked_file import read_checked
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_replication.storage.metadata import Identity
from taskraft_replication.storage.stored_member import StoredMember, stored_member
from taskraft_service.cluster.interrupted_restore import INTERRUPTED, is_restoring
from taskraft_service.cluster.lost_member import LostMember, LostMemberRecord
from taskraft_service.cluster.member_requests import (
    ASK_PAUSE_SECONDS,
    RETRYABLE,
    send_add_member,
)
from taskraft_service.cluster.wanted_size import WantedSizeInvalid, excess_size
from taskraft_service.config.addresses import PeerAddress
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.storage.directory import POINTER, STATE_DIRECTORY
from taskraft_service.versions import OWN_RANGE

log: Final = structlog.get_logger(__name__)

GROUP_ID: Final = 0
"""Id of the only Raft group of the cluster."""
FINAL: Final = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Status codes after which a node that has lost its data stops asking to be replaced."""
NO_MAJORITY: Final = (
    "a member is replaced while a majority of the voters runs without it; start the other nodes. If"
    " they are lost for good, run `taskraft cluster recover --force-new` on the survivor, see"
    " docs/disaster.md"
)


class JoinRefused(Exception):
    """The cluster refused this node or did not answer; the text says why, in one line."""


class RestoreInterrupted(JoinRefused):
    """The data directory has a part of a restored snapshot."""


class DataMissing(JoinRefused):
    """The data directory of a founder is empty, and the node may not found a cluster."""


class NameKnown(JoinRefused):
    """The cluster has a member of the name of this node, with another data directory."""


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
    def is_joiner(self) -> bool:
        """Whether the node joins a cluster at its first start instead of founding one."""

    @property
    def has_host_name(self) -> bool:
        """Whether the name is the host name, and a new node of these settings would be alone."""

    @property
    def member(self) -> PeerAddress:
        """Name and addresses of this node."""

    @property
    def members(self) -> Sequence[PeerAddress]:
        """Founders that the settings name."""


async def resolve_member_identity(
    config: ServerConfig,
    security: PeerSecurity | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> MemberIdentity:
    """Return the identity of this node: from its data, otherwise its settings or the cluster.

    The data directory must be locked. With certificates, a node asks at the peer port, where its
    own certificate proves its name. ``show`` gets the text for the probes of a node that has lost
    its data and waits for the cluster.

    Raises:
        JoinRefused: the cluster refused this node or did not answer.
        RestoreInterrupted: the directory has the files of an interrupted restore.
        DataMissing: the directory of a founder is empty, and the node may not found a cluster.
        DirectoryForeign: the data belongs to another node, member or cluster; nothing was changed.
        LogDamaged: small files of the member are damaged.
    """
    if await asyncio.to_thread(is_restoring, config.data_dir):
        raise RestoreInterrupted(f"{config.data_dir} has {INTERRUPTED}")
    record = LostMemberRecord(config.data_dir, GROUP_ID)
    lost = await asyncio.to_thread(record.read)
    if lost is not None and not await asyncio.to_thread(_is_in_place, record, lost, config):
        await asyncio.to_thread(_check_lost, config, lost)
        member_id = await _ask_to_replace(config, lost, security, show)
        if not await asyncio.to_thread(record.is_set_aside, lost):
            await asyncio.to_thread(record.set_aside, lost)
        member = replace(config.member, member_id=member_id)
        return MemberIdentity(member, (), lost.directory_id)
    stored = await asyncio.to_thread(stored_member, config.data_dir, GROUP_ID)
    if stored.identity is None and not config.is_joiner:
        await asyncio.to_thread(_check_no_other_state, config)
    if stored.identity is None:
        await asyncio.to_thread(_check_wanted, config)
    if stored.identity is None and not config.is_joiner and not config.bootstrap:
        raise DataMissing("the data directory is empty, and bootstrap is false")
    identity = known_identity(config, stored)
    if identity is not None:
        return identity
    own = MemberIdentity(config.member, (), stored.directory_id)
    member_id = await _ask(config, add_member_request(config, own), security)
    return replace(own, member=replace(own.member, member_id=member_id))


def known_identity(settings: IdentitySettings, stored: StoredMember) -> MemberIdentity | None:
    """Return the identity of a node from its data or its settings; None if it must ask the cluster.

    Raises:
        DirectoryForeign: the data belongs to another node, member or cluster.
    """
    if stored.identity is None:
        if settings.is_joiner:
            return None
        return MemberIdentity(settings.member, settings.members, stored.directory_id)
    own = own_member(settings, stored.identity)
    if stored.has_joined:
        return MemberIdentity(own, (), stored.directory_id)
    if own.member_id != settings.member.member_id:
        raise DirectoryForeign(
            f"{settings.data_dir} belongs to member {own.member_id}, "
            f"not to member {settings.member.member_id}"
        )
    founders = [own if each.member_id == own.member_id else each for each in settings.members]
    return MemberIdentity(own, founders, stored.directory_id)


def own_member(settings: IdentitySettings, stored: Identity) -> PeerAddress:
    """Return this node as the member in its data directory.

    A lone node that has its host name, for example a container, keeps the name of its directory.

    Raises:
        DirectoryForeign: the data belongs to another cluster or node.
    """
    if stored.cluster_id != settings.cluster_id:
        raise DirectoryForeign(
            f"{settings.data_dir} belongs to cluster_id {stored.cluster_id!r}, "
            f"not to {settings.cluster_id!r}"
        )
    name = settings.member.name
    if settings.has_host_name and stored.name:
        name = stored.name
    if not stored.is_named(name):
        raise DirectoryForeign(
            f"{settings.data_dir} belongs to node {stored.name!r}, not to {name!r}; "
            f"give each node its own directory"
        )
    return replace(settings.member, member_id=stored.member_id, name=name)


def add_member_request(settings: IdentitySettings, identity: MemberIdentity) -> pb.AddMemberRequest:
    """Return the request by which a node becomes a member or announces its addresses."""
    return pb.AddMemberRequest(
        name=identity.member.name,
        peer_address=identity.member.peer_address,
        address=identity.member.client_address,
        directory_id=identity.directory_id,
        cluster_id=settings.cluster_id,
        request_id=str(uuid.uuid4()),
        lowest_cluster_version=OWN_RANGE.lowest,
        highest_cluster_version=OWN_RANGE.highest,
    )


def _check_no_other_state(config: ServerConfig) -> None:
    """Check that a founder without a log has no state of a later member of its name.

    Raises:
        LogDamaged: the state belongs to another member id, so the log of that member is missing.
    """
    try:
        found = read_checked(DiskFileSystem(config.data_dir / STATE_DIRECTORY), POINTER)
    except ReplicationError:
        return  # no state, or a damaged one, which is repaired later
    is_own = found.get("member_id") == config.member.member_id
    if found.get("cluster_id") == config.cluster_id and not is_own:
        raise LogDamaged(f"the state belongs to member {found.get('member_id')}, without a log")


def _check_wanted(config: ServerConfig) -> None:
    """Check that the operator wants a node with an empty data directory.

    Raises:
        JoinRefused: the ordinal of the node is not below the wanted number of nodes.
    """
    try:
        wanted = excess_size(config.node_name, config.replicas_file)
    except WantedSizeInvalid as error:
        raise JoinRefused(f"the data directory is empty, and {error}") from error
    if wanted is not None:
        raise JoinRefused(
            f"{config.node_name} does not join: {config.replicas_file} has the number {wanted}, so"
            f" only nodes with an ordinal below {wanted} join; raise the number, or stop the node"
        )


def _check_lost(config: ServerConfig, lost: LostMember) -> None:
    """Check that a lost member is this node.

    Raises:
        DirectoryForeign: another node has lost its data here.
    """
    if not config.has_host_name and lost.name and lost.name.lower() != config.node_name.lower():
        raise DirectoryForeign(
            f"{config.data_dir} belongs to node {lost.name!r}, not to {config.node_name!r}; "
            f"give each node its own directory"
        )


def _is_in_place(record: LostMemberRecord, lost: LostMember, config: ServerConfig) -> bool:
    """Return whether the new member has an identity of its own in the data directory."""
    if not record.is_set_aside(lost):
        return False
    return stored_member(config.data_dir, GROUP_ID).identity is not None


def replacement_targets(config: ServerConfig, *, has_certificates: bool) -> Sequence[str]:
    """Return the addresses of other members at which a node can ask to be replaced."""
    others = [member for member in config.members if member.name != config.node_name]
    known = [each.peer_address if has_certificates else each.client_address for each in others]
    return list(dict.fromkeys([*config.join_addresses, *(known if config.peers else ())]))


async def _ask_to_replace(
    config: ServerConfig,
    lost: LostMember,
    security: PeerSecurity | None,
    show: Callable[[str], None],
) -> int:
    """Ask the nodes of the cluster in turn until one accepts a new member; return its id.

    A node that never knew its member id joins if the cluster has no member of its name: the member
    was removed before the data was lost.

    Raises:
        JoinRefused: the cluster has no such member, or refuses the node for good, or the operator
            does not want the node.
    """
    identity = MemberIdentity(config.member, (), lost.directory_id)
    said, is_member = "", True
    for address in cycle(replacement_targets(config, has_certificates=security is not None)):
        request = add_member_request(config, identity)
        request.replaces_member, request.replaced_id = is_member, lost.member_id
        try:
            member_id = await send_add_member(address, request, security)
        except grpc.aio.AioRpcError as error:
            reason = f"{address}: {error.details()}"
            if error.code() is grpc.StatusCode.NOT_FOUND and is_member and not lost.member_id:
                await asyncio.to_thread(_check_wanted, config)
                is_member = False
            elif error.code() in FINAL:
                raise JoinRefused(f"the lost member cannot be replaced: {reason}") from error
            if error.code() in RETRYABLE:
                reason += f"; {NO_MAJORITY}"
            show(f"replacing member {lost.member_id or config.node_name}: {lost.reason}; {reason}")
            if reason != said:
                log.warning("this node waits to be replaced", lost=lost.reason, reason=reason)
            said = reason
        else:
            log.warning(
                "this node replaces a lost member" if is_member else "this node joins again",
                lost=lost.reason,
                old=lost.member_id,
                new=member_id,
            )
            return member_id
        await asyncio.sleep(ASK_PAUSE_SECONDS)
    raise JoinRefused("neither peers nor join names another node")


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
            if error.code() is grpc.StatusCode.ALREADY_EXISTS:
                raise NameKnown(f"cannot join the cluster: {reason}") from error
            if error.code() not in RETRYABLE or asyncio.get_running_loop().time() > until:
                raise JoinRefused(f"cannot join the cluster: {reason}") from error
            log.info("join not answered; retrying", reason=reason)
        else:
            log.info("joined the cluster", member=member_id, name=request.name)
            return member_id
        await asyncio.sleep(ASK_PAUSE_SECONDS)
    raise AssertionError("there is always another address")
