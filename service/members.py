"""Show who belongs to the cluster: what this node has applied, in the words of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from replication.core.types import ConfState, MemberId, MemberInfo
from service.config import PeerAddress


class Addresses(Protocol):
    """Tells where a member is; satisfied by ``Members`` and by a plain mapping."""

    def get(self, member_id: int, /) -> PeerAddress | None:
        """Return a member, None if this node has not heard of it."""


def info_of(member: PeerAddress) -> MemberInfo:
    """Return a member as the Raft driver knows it."""
    return MemberInfo(
        MemberId(member.member_id), member.name, member.peer_address, member.client_address
    )


class Members:
    """The members of the cluster, by the membership that is applied here.

    Args:
        membership: returns that membership.
        configured: members as this node's settings have them; their addresses outweigh those that
            the cluster knows, since an operator may have moved everybody.
    """

    def __init__(
        self, membership: Callable[[], ConfState], configured: Sequence[PeerAddress]
    ) -> None:
        self._membership = membership
        self._configured: Mapping[tuple[int, str], PeerAddress] = {
            (member.member_id, member.name): member for member in configured
        }

    def all(self) -> Sequence[PeerAddress]:
        """Return all members, in the order of their numbers."""
        return [self._shown(info) for info in self._membership().roster.members]

    def get(self, member_id: int, /) -> PeerAddress | None:
        """Return a member, None if this node has not heard of it."""
        return next((each for each in self.all() if each.member_id == member_id), None)

    def named(self, name: str) -> PeerAddress | None:
        """Return the member of that name."""
        return next((each for each in self.all() if each.name == name), None)

    def _shown(self, info: MemberInfo) -> PeerAddress:
        known = PeerAddress(info.member, info.name, info.peer_address, info.client_address)
        return self._configured.get((info.member, info.name), known)
