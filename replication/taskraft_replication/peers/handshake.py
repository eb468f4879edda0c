"""Introduce members to each other, and refuse strangers with a reason."""

from __future__ import annotations

from enum import Enum
from typing import Final

from taskraft_replication.core.types import MemberId, Roster
from taskraft_replication.errors import (
    DirectoryRefused,
    DirectoryUnknown,
    MemberRemoved,
    PeerRefused,
)
from taskraft_replication.membership.roster import find, was_removed
from taskraft_replication.peers.contract import Membership
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

PROTOCOL_VERSION: Final = 1
EXPELLED_KEY: Final = "taskraft-expelled"
"""Key of the metadata with which a stream is refused for good."""


class Expulsion(Enum):
    """Why a member is refused for good; the value travels in the metadata ``EXPELLED_KEY``."""

    REMOVED = "removed"
    DIRECTORY = "directory"


class PeerExpelled(PeerRefused):
    """A peer is refused for good, and is told so."""

    def __init__(self, expulsion: Expulsion, text: str) -> None:
        super().__init__(text)
        self.expulsion = expulsion


def hello_to(member: MemberId, own: Membership) -> pb.Hello:
    """Return the introduction of this member to ``member``."""
    return pb.Hello(
        protocol_version=PROTOCOL_VERSION,
        cluster_id=own.cluster_id,
        group_id=own.group_id,
        sender=own.member_id,
        receiver=member,
        incarnation=own.incarnation,
        directory_id=own.directory_id,
        peer_address=own.peer_address,
    )


def check_directory(member: MemberId, directory_id: str, roster: Roster) -> None:
    """Make sure that a peer is the member it says it is, and has what it promised.

    A number that was not given yet, as far as this member knows, proves nothing: it may be this
    member that is behind.

    Raises:
        PeerExpelled: the member was removed, or has come with another data directory.
    """
    if was_removed(roster, member):
        raise PeerExpelled(
            Expulsion.REMOVED,
            f"member {member} was removed from the group; to come back it must join anew, "
            f"with an empty data directory",
        )
    known = find(roster, member)
    if known is not None and known.directory_id and known.directory_id != directory_id:
        raise PeerExpelled(
            Expulsion.DIRECTORY,
            f"member {member} comes with data directory {directory_id or 'unknown'}, but is known "
            f"with {known.directory_id}: it was wiped or replaced and has forgotten what it "
            f"promised; remove the member, then let it join anew",
        )


def expulsion_error(kind: str, text: str) -> DirectoryRefused | None:
    """Return what an expulsion means for the member that is told of it; None: it is none."""
    match kind:
        case Expulsion.REMOVED.value:
            return MemberRemoved(text)
        case Expulsion.DIRECTORY.value:
            return DirectoryUnknown(text)
        case _:
            return None


class PeerIncarnations:
    """Knows which life of each peer speaks now."""

    def __init__(self) -> None:
        self._current: dict[tuple[int, int], int] = {}

    def check_hello(self, hello: pb.Hello, own: Membership, roster: Roster) -> None:
        """Let a peer in.

        Raises:
            PeerRefused: it speaks another protocol, is of another cluster, means another member,
                or is an earlier life of a peer that was heard of since.
            PeerExpelled: it was removed, or has come with another data directory.
        """
        if hello.protocol_version != PROTOCOL_VERSION:
            raise PeerRefused(
                f"protocol version {hello.protocol_version} is not {PROTOCOL_VERSION}"
            )
        if hello.cluster_id != own.cluster_id:
            raise PeerRefused(f"cluster {hello.cluster_id!r} is not {own.cluster_id!r}")
        if hello.receiver != own.member_id:
            raise PeerRefused(f"this is member {own.member_id}, not {hello.receiver}")
        if hello.sender < 1 or hello.sender == own.member_id:
            raise PeerRefused(f"member {hello.sender} cannot be a peer of {own.member_id}")
        check_directory(MemberId(hello.sender), hello.directory_id, roster)
        key = (hello.group_id, hello.sender)
        current = self._current.get(key, 0)
        if hello.incarnation < current:
            raise PeerRefused(
                f"member {hello.sender} was started again since: life {current} speaks, "
                f"not {hello.incarnation}"
            )
        self._current[key] = hello.incarnation

    def is_current(self, hello: pb.Hello) -> bool:
        """Tell whether no later life of the peer was admitted since."""
        return self._current[hello.group_id, hello.sender] == hello.incarnation
