"""Define the handshake between members, and refuse peers that do not belong to the group."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.errors import (
    DirectoryOutdated,
    DirectoryRefused,
    DirectoryUnknown,
    MemberInUse,
    MemberRemoved,
    PeerRefused,
    ReceiverAbsent,
    VersionTooOld,
)
from taskraft_replication.membership.roster import find, was_removed
from taskraft_replication.peers.contract import Membership
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb
from taskraft_replication.versions import ProtocolVersion

PROTOCOL_VERSION: Final = max(ProtocolVersion)
"""Highest version of the peer protocol that this release speaks."""
LOWEST_PROTOCOL_VERSION: Final = min(ProtocolVersion)
"""Lowest version of the peer protocol that this release speaks."""
EXPELLED_KEY: Final = "taskraft-expelled"
"""Metadata key that marks a permanent refusal."""


class Expulsion(Enum):
    """Reason of a permanent refusal; its value is sent in the metadata ``EXPELLED_KEY``."""

    REMOVED = "removed"
    DIRECTORY = "directory"
    VERSION = "version"
    OUTDATED = "outdated"
    """A later incarnation, or another process of the same incarnation, was accepted."""
    SECOND = "second"
    """Another process of the member is connected; permanent only if the process stays."""


class PeerExpelled(PeerRefused):
    """A peer is refused permanently; the reason is sent to the peer."""

    def __init__(self, expulsion: Expulsion, text: str) -> None:
        super().__init__(text)
        self.expulsion = expulsion


def hello_to(member: MemberId, own: Membership) -> pb.Hello:
    """Return this member's introduction to ``member``."""
    return pb.Hello(
        protocol_version=PROTOCOL_VERSION,
        lowest_protocol_version=LOWEST_PROTOCOL_VERSION,
        cluster_id=own.cluster_id,
        group_id=own.group_id,
        sender=own.member_id,
        receiver=member,
        incarnation=own.incarnation,
        directory_id=own.directory_id,
        peer_address=own.peer_address,
        founders=own.founders,
        lowest_program_version=own.program.lowest,
        highest_program_version=own.program.highest,
        start_id=own.start_id,
    )


def answer_to(hello: pb.Hello, own: Membership, ticket: bytes) -> pb.ExchangeResponse:
    """Return the answer to the introduction of a peer.

    Raises:
        PeerRefused: the peer and this member have no protocol version in common.
    """
    return pb.ExchangeResponse(
        incarnation=own.incarnation,
        directory_id=own.directory_id,
        connection_ticket=ticket,
        protocol_version=common_version(hello),
    )


def common_version(hello: pb.Hello) -> int:
    """Return the highest protocol version that the sender of ``hello`` and this member speak.

    Raises:
        PeerRefused: they have no version in common.
    """
    highest = hello.protocol_version
    lowest = hello.lowest_protocol_version or highest  # version 1 did not send a lowest version
    common = min(highest, PROTOCOL_VERSION)
    if common < max(lowest, LOWEST_PROTOCOL_VERSION):
        raise PeerRefused(
            f"member {hello.sender} speaks {_versions(lowest, highest)} of the protocol between "
            f"members, member {hello.receiver} speaks "
            f"{_versions(LOWEST_PROTOCOL_VERSION, PROTOCOL_VERSION)}; "
            f"run releases on both nodes that have a version in common"
        )
    return common


def check_version(member: MemberId, answer: pb.ExchangeResponse) -> None:
    """Check the protocol version that a peer has chosen.

    Raises:
        PeerRefused: this member does not speak the version.
    """
    if not LOWEST_PROTOCOL_VERSION <= answer.protocol_version <= PROTOCOL_VERSION:
        raise PeerRefused(
            f"member {member} answers in version {answer.protocol_version} of the protocol between "
            f"members; this member speaks {_versions(LOWEST_PROTOCOL_VERSION, PROTOCOL_VERSION)}"
        )


def _versions(lowest: int, highest: int) -> str:
    return f"version {highest}" if lowest == highest else f"versions {lowest} to {highest}"


def check_peer(hello: pb.Hello, own: Membership, roster: Roster) -> None:
    """Check the introduction of a peer, except which of its starts it is.

    Raises:
        PeerRefused: no common protocol version, wrong cluster or receiver, or other founders.
        PeerExpelled: the member was removed, has another data directory or too old a release.
    """
    common_version(hello)
    if hello.cluster_id != own.cluster_id:
        raise PeerRefused(f"cluster {hello.cluster_id!r} is not {own.cluster_id!r}")
    if hello.receiver != own.member_id:
        raise ReceiverAbsent(f"this is member {own.member_id}, not {hello.receiver}")
    if hello.sender < 1 or hello.sender == own.member_id:
        raise PeerRefused(f"member {hello.sender} cannot be a peer of {own.member_id}")
    check_program(hello, own)
    check_founders(hello, own, roster)
    check_directory(MemberId(hello.sender), hello.directory_id, roster)


def check_directory(member: MemberId, directory_id: str, roster: Roster) -> None:
    """Check that a peer is a current member with the data directory known for it.

    A member id above the highest known id passes, because this member may be behind.

    Raises:
        PeerExpelled: the member was removed, or has another data directory.
    """
    if was_removed(roster, member):
        raise PeerExpelled(
            Expulsion.REMOVED,
            f"member {member} was removed from the group; to come back it must join again, "
            f"with an empty data directory",
        )
    known = find(roster, member)
    if known is not None and known.directory_id and known.directory_id != directory_id:
        raise PeerExpelled(
            Expulsion.DIRECTORY,
            f"member {member} has data directory {directory_id or 'unknown'}, but the group knows "
            f"it with directory {known.directory_id}: the directory was wiped or replaced, so "
            f"acknowledged data is lost; remove the member, then let it join again",
        )


def check_founders(hello: pb.Hello, own: Membership, roster: Roster) -> None:
    """Check that a peer that founds a group founds the group of this member.

    Founders with different lists could elect two leaders, because a majority of one list need not
    overlap a majority of the other.

    Raises:
        PeerRefused: the peer founds another group.
    """
    founders = tuple(hello.founders)
    if own.founders:
        is_this_group = founders in ((), own.founders)
    else:
        # A member that has just joined knows no other member yet.
        is_this_group = not roster.members or max(founders, default=0) <= roster.last_member
    if not is_this_group:
        members = own.founders or tuple(info.member for info in roster.members)
        raise PeerRefused(
            f"member {hello.sender} founds a group of members {_listed(founders)}, but this group "
            f"has members {_listed(members)}; correct its list of founders, or let its node join"
        )


def _listed(members: Sequence[int]) -> str:
    return ", ".join(map(str, members))


def check_program(hello: pb.Hello, own: Membership) -> None:
    """Check that a peer speaks the cluster version of this member's group.

    Raises:
        PeerExpelled: the release of the peer is too old for the group.
        PeerRefused: the group has not raised its version to one that the peer speaks.
    """
    lowest, highest = hello.lowest_program_version, hello.highest_program_version
    needed = own.program.in_force()
    if not highest or not needed or lowest <= needed <= highest:
        return
    text = (
        f"the release of member {hello.sender} speaks cluster {_versions(lowest, highest)}, and "
        f"the cluster is at cluster version {needed}; run a release that speaks cluster version "
        f"{needed}"
    )
    if highest < needed:
        raise PeerExpelled(Expulsion.VERSION, text)
    raise PeerRefused(text)


def expulsion_error(kind: str, text: str) -> DirectoryRefused | None:
    """Return the error for a permanent refusal by a peer, or None for an unknown kind."""
    match kind:
        case Expulsion.REMOVED.value:
            return MemberRemoved(text)
        case Expulsion.DIRECTORY.value:
            return DirectoryUnknown(text)
        case Expulsion.VERSION.value:
            return VersionTooOld(text)
        case Expulsion.OUTDATED.value:
            return DirectoryOutdated(text)
        case Expulsion.SECOND.value:
            return MemberInUse(text)
        case _:
            return None
