"""Introduce members to each other, and refuse strangers with a reason."""

from __future__ import annotations

from typing import Final

from replication.core.types import MemberId
from replication.errors import PeerRefused
from replication.peers import Membership
from taskraft.raft.v1 import raft_pb2 as pb

PROTOCOL_VERSION: Final = 1


def hello_to(member: MemberId, own: Membership) -> pb.Hello:
    """Return the introduction of this member to ``member``."""
    return pb.Hello(
        protocol_version=PROTOCOL_VERSION,
        cluster_id=own.cluster_id,
        group_id=own.group_id,
        sender=own.member_id,
        receiver=member,
        incarnation=own.incarnation,
    )


class Lives:
    """Knows which life of each peer speaks now."""

    def __init__(self) -> None:
        self._current: dict[tuple[int, int], int] = {}

    def admit(self, hello: pb.Hello, own: Membership) -> None:
        """Let a peer in.

        Raises:
            PeerRefused: it speaks another protocol, is of another cluster, means another member,
                or is an earlier life of a peer that was heard of since.
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
