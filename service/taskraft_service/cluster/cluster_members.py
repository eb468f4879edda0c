"""Show who belongs to the cluster: what this node has applied, in the words of its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from taskraft_replication.core.types import MemberId, MemberInfo, Roster
from taskraft_service.config.addresses import PeerAddress


class MemberAddresses(Protocol):
    """Tells where a member is; satisfied by ``ClusterMembers`` and by a plain mapping."""

    def get(self, member_id: int, /) -> PeerAddress | None:
        """Return a member, None if this node has not heard of it."""


def info_of(member: PeerAddress) -> MemberInfo:
    """Return a member as the Raft driver knows it."""
    return MemberInfo(
        MemberId(member.member_id), member.name, member.peer_address, member.client_address
    )


class ClusterMembers:
    """The members of the cluster, by the membership that is applied here.

    Args:
        roster: returns who the members are.
        configured: members as this node's settings have them; their addresses outweigh those that
            the cluster knows, since an operator may have moved everybody.
    """

    def __init__(self, roster: Callable[[], Roster], configured: Sequence[PeerAddress]) -> None:
        self._roster = roster
        self._configured: Mapping[tuple[int, str], PeerAddress] = {
            (member.member_id, member.name): member for member in configured
        }
        self._shown_roster: Roster | None = None
        self._shown: Mapping[int, PeerAddress] = {}

    def all(self) -> Sequence[PeerAddress]:
        """Return all members, in the order of their numbers."""
        return list(self._by_number().values())

    def get(self, member_id: int, /) -> PeerAddress | None:
        """Return a member, None if this node has not heard of it."""
        if self._roster() is self._shown_roster:  # each response to a client names the leader
            return self._shown.get(member_id)
        return self._by_number().get(member_id)

    def named(self, name: str) -> PeerAddress | None:
        """Return the member of that name."""
        return next((each for each in self.all() if each.name == name), None)

    def _by_number(self) -> Mapping[int, PeerAddress]:
        """Return the members as they are shown; every answer to a client asks for one of them."""
        roster = self._roster()
        if roster is not self._shown_roster:
            self._shown_roster = roster
            self._shown = {info.member: self._show(info) for info in roster.members}
        return self._shown

    def _show(self, info: MemberInfo) -> PeerAddress:
        known = PeerAddress(info.member, info.name, info.peer_address, info.client_address)
        return self._configured.get((info.member, info.name), known)
