"""Define the roster of a group, and its updates by membership changes.

The roster is part of the membership: it is in the context of the change that adds a member, in the
stored history, and in snapshots. All members compute the same roster from the same log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.message import DecodeError

from taskraft_replication.core import membership
from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.errors import ConfChangeMalformed
from taskraft_replication.core.types import ChangeMade, ConfState, MemberId, MemberInfo, Roster
from taskraft_replication.errors import MessageMalformed
from taskraft_replication.membership.codec import decode_roster, encode_roster
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb

CHANGES_KEPT_MAX: Final = 32
"""Number of recent changes whose retries are recognized. Changes are rare, and callers retry within
seconds, so a small number is enough.
"""
REMOVED_NAMES_MAX: Final = 1_000
"""Number of names of removed nodes that a roster keeps. Once a roster has this number, older names
may be forgotten, so no node may add itself any more.
"""


def roster_of(infos: Iterable[MemberInfo]) -> Roster:
    """Return the roster of a group from which no member was removed."""
    members = tuple(sorted(infos, key=lambda info: info.member))
    return Roster(members, max((info.member for info in members), default=MemberId(0)))


def find(roster: Roster, member: MemberId) -> MemberInfo | None:
    """Return the entry of ``member``, or None."""
    return next((info for info in roster.members if info.member == member), None)


def was_removed(roster: Roster, member: MemberId) -> bool:
    """Return whether ``member`` was removed; False for an id that was not assigned yet."""
    return 0 < member <= roster.last_member and find(roster, member) is None


def is_named(info: MemberInfo, node: str) -> bool:
    """Return whether a member is the node of a name; certificates ignore the case of names."""
    return info.name.lower() == node.lower()


def was_node_removed(roster: Roster, node: str) -> bool:
    """Return whether a node was removed, and not added again."""
    return node.lower() in (name.lower() for name in roster.removed_names)


def may_add_itself(roster: Roster, node: str) -> bool:
    """Return whether the roster lets a node add itself; False after the node was removed."""
    is_complete = len(roster.removed_names) < REMOVED_NAMES_MAX
    return is_complete and not was_node_removed(roster, node)


def members_without_directory(roster: Roster) -> tuple[MemberId, ...]:
    """Return the members whose data directory id is unknown."""
    return tuple(info.member for info in roster.members if not info.directory_id)


def has_moved(info: MemberInfo, at_start: Roster) -> bool:
    """Return whether a member has announced other addresses than those in the earlier roster."""
    before = find(at_start, info.member)
    here = (info.peer_address, info.client_address)
    return before is not None and (before.peer_address, before.client_address) != here


def with_configured(
    roster: Roster, configured: Mapping[MemberId, MemberInfo], at_start: Roster
) -> Roster:
    """Return ``roster`` with the peer addresses that the operator has configured.

    A configured address is newer than ``at_start``, the roster when this process started. It is
    older than an address that its member has announced since.
    """
    members = []
    for info in roster.members:
        own = configured.get(info.member)
        if own is not None and own.name == info.name and not has_moved(info, at_start):
            members.append(replace(info, peer_address=own.peer_address))
        else:
            members.append(info)
    return replace(roster, members=tuple(members))


def change_of(kind: MemberChangeKind, info: MemberInfo, request: str = "") -> ConfChange:
    """Return the change of one member, with its name and addresses.

    ``request`` identifies the caller's request; see ``made_before``.
    """
    made = (ChangeMade(request, info.member),) if request else ()
    return change_of_several((MemberChange(kind, info.member),), (info,), made)


def removal_of(members: Sequence[MemberId], request: str = "") -> ConfChange:
    """Return the change that removes members: one, or all of one name."""
    made = (ChangeMade(request, members[-1]),) if request else ()
    removals = (MemberChange(MemberChangeKind.REMOVE, each) for each in members)
    return change_of_several(removals, (), made)


def change_of_several(
    changes: Iterable[MemberChange],
    infos: Iterable[MemberInfo],
    made: Iterable[ChangeMade] = (),
) -> ConfChange:
    """Return a change of several members, which uses a joint configuration."""
    named = Roster(tuple(infos), changes_made=tuple(made))
    context = encode_roster(named).SerializeToString()
    return ConfChange(tuple(changes), context=context)


def made_before(roster: Roster, request: str) -> MemberId | None:
    """Return the member that was changed by ``request``, or None if the request is new.

    A repeated request, for example after a lost answer, must not be executed again.
    """
    made = (each.member for each in roster.changes_made if each.request == request)
    return next(made, None)


def with_roster(after: ConfState, change: ConfChange, before: Roster) -> ConfState:
    """Return ``after``, the configuration that ``change`` led to, with its roster.

    A member stays in the roster while it is in either half of the configuration. The name of a node
    is removed with its last member.

    Raises:
        ConfChangeMalformed: the context of the change is not a roster.
    """
    named = _named_by(change)
    infos = {info.member: info for info in (*before.members, *named.members)}
    here = membership.members(after)
    members = tuple(infos[member] for member in here if member in infos)
    last = max((before.last_member, *here))
    made = (*before.changes_made, *named.changes_made)[-CHANGES_KEPT_MAX:]
    removed = _removed_names(before, members)
    return replace(after, roster=Roster(members, last, made, removed))


def _removed_names(before: Roster, members: Sequence[MemberInfo]) -> tuple[str, ...]:
    """Return the names of removed nodes, after ``members`` have taken the place of others."""
    present = {info.name.lower() for info in members}
    names = (*before.removed_names, *(info.name for info in before.members if info.name))
    kept = dict.fromkeys(name for name in names if name.lower() not in present)
    return tuple(kept)[-REMOVED_NAMES_MAX:]


def _named_by(change: ConfChange) -> Roster:
    try:
        return decode_roster(pb.Roster.FromString(change.context))
    except (DecodeError, MessageMalformed) as error:
        raise ConfChangeMalformed(f"the context is not a roster: {error}") from error
