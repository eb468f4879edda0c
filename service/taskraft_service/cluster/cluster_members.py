"""The applied membership of the cluster, with client addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from taskraft_replication.core.types import MemberId, MemberInfo, Roster
from taskraft_replication.membership.roster import has_moved
from taskraft_service.config.addresses import PeerAddress


class MemberAddresses(Protocol):
    """Lookup of a member's addresses; satisfied by ``ClusterMembers`` and by a plain mapping."""

    def get(self, member_id: int, /) -> PeerAddress | None:
        """Return a member, or None if this node does not know it."""


def info_of(member: PeerAddress) -> MemberInfo:
    """Convert a member to the form that the Raft node uses."""
    return MemberInfo(
        MemberId(member.member_id), member.name, member.peer_address, member.client_address
    )


class ClusterMembers:
    """The members of the cluster, according to the membership applied on this node.

    Args:
        roster: returns the applied membership.
        configured: members in this node's settings. Their addresses override the addresses in the
            applied membership, because an operator may have moved all nodes. An address that a
            member has announced since this process started is newer, and counts.
        at_start: names and addresses of the members when this process started.
    """

    def __init__(
        self,
        roster: Callable[[], Roster],
        configured: Sequence[PeerAddress],
        at_start: Roster,
    ) -> None:
        self._roster = roster
        self._at_start = at_start
        self._configured: Mapping[tuple[int, str], PeerAddress] = {
            (member.member_id, member.name): member for member in configured
        }
        self._shown_roster: Roster | None = None
        self._shown: Mapping[int, PeerAddress] = {}

    def all(self) -> Sequence[PeerAddress]:
        """Return all members in order of their ids."""
        return list(self._by_number().values())

    def get(self, member_id: int, /) -> PeerAddress | None:
        """Return a member, or None if this node does not know it."""
        if self._roster() is self._shown_roster:  # each response to a client names the leader
            return self._shown.get(member_id)
        return self._by_number().get(member_id)

    def named(self, name: str) -> PeerAddress | None:
        """Return the member with this name, or None."""
        return next((each for each in self.all() if each.name == name), None)

    def _by_number(self) -> Mapping[int, PeerAddress]:
        """Return the members by id; cached, because every response to a client needs them."""
        roster = self._roster()
        if roster is not self._shown_roster:
            self._shown_roster = roster
            self._shown = {info.member: self._show(info) for info in roster.members}
        return self._shown

    def _show(self, info: MemberInfo) -> PeerAddress:
        known = PeerAddress(info.member, info.name, info.peer_address, info.client_address)
        if has_moved(info, self._at_start):
            return known
        return self._configured.get((info.member, info.name), known)
