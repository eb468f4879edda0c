"""Take proposals into a leader's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_replication.core import confchange, membership
from taskraft_replication.core.errors import ConfChangeFault, ConfChangeInvalid, DropReason
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.member import Member
from taskraft_replication.core.sender import broadcast_append
from taskraft_replication.core.types import (
    NO_MEMBER,
    Entry,
    EntryKind,
    LogIndex,
    Message,
    MessageKind,
    RaftRole,
    Term,
)

_APPEND_REPLY: Final = MessageKind.APPEND_REPLY
_LEADER: Final = RaftRole.LEADER
_NORMAL: Final = EntryKind.NORMAL


def propose(member: Member, entries: Sequence[Entry]) -> DropReason | ConfChangeFault | None:
    """Append ``entries`` (their terms and indexes are filled in) and send them to everybody.

    On a follower they are sent on to the leader, if that is configured. A membership change that
    cannot be made now is replaced by an empty entry, so that the entries keep their places; its
    fault is returned. With a reason to drop, none of the entries is in the log.
    """
    assert entries
    if member.role is not _LEADER:
        return _forward(member, entries)
    if member.config.member_id not in member.members.progress:
        return DropReason.NOT_A_MEMBER
    if member.transferee != NO_MEMBER:
        return DropReason.TRANSFERRING
    size = payload_bytes(entries)
    room = member.config.uncommitted_bytes_max - member.uncommitted_bytes
    # The first proposal always fits, and what is empty always fits: a no-op, leaving a joint
    # configuration.
    if size > room and member.uncommitted_bytes and size:
        return DropReason.TOO_MANY_UNCOMMITTED
    fault = None
    if any(entry.kind is not _NORMAL for entry in entries):
        entries, fault = _admit_changes(member, entries)
        size = payload_bytes(entries)
    member.uncommitted_bytes += size
    append_own(member, entries)
    broadcast_append(member)
    return fault


def leave_joint_if_due(member: Member) -> None:
    """Propose to leave a joint configuration that is to be left by itself.

    It is empty and so never too large. It is dropped only while leadership is handed over; then the
    next leader tries, or this one when that has failed.
    """
    if member.configuration.auto_leave and member.role is RaftRole.LEADER and _may_change(member):
        propose(member, [Entry(Term(0), LogIndex(0), kind=EntryKind.CONF_CHANGE_V2)])


def _may_change(leader: Member) -> bool:
    """Tell whether no membership change can be under way that the leader does not act by yet.

    Its log may end with a change of its predecessor; ``pending_change_index`` covers that
    (etcd-io/etcd#7625). And before an entry of its own term is committed, it does not know what is.
    """
    is_applied = leader.pending_change_index <= leader.log.applied_index
    return is_applied and leader.has_committed_in_term()


def append_own(member: Member, entries: Sequence[Entry]) -> None:
    """Append ``entries`` to the leader's log; once synced, it acknowledges them to itself."""
    assert member.role is _LEADER, "a leader alone makes entries"
    log, term, own_id = member.log, member.term, member.config.member_id
    index = log.last_index
    own = []
    for entry in entries:
        index = LogIndex(index + 1)
        own.append(Entry(term, index, entry.data, entry.kind))
    log.append(own)
    member.after_append.append(Message(_APPEND_REPLY, own_id, own_id, term, index=index))


def _forward(member: Member, entries: Sequence[Entry]) -> DropReason | None:
    if member.leader == NO_MEMBER:
        return DropReason.NO_LEADER
    if not member.config.forward_proposals:
        return DropReason.NOT_LEADER
    member.send(
        Message(
            MessageKind.PROPOSE,
            member.leader,
            member.config.member_id,
            entries=tuple(entries),
        )
    )
    return None


def _admit_changes(
    member: Member, entries: Sequence[Entry]
) -> tuple[Sequence[Entry], ConfChangeFault | None]:
    """Replace the membership changes that cannot be made now by empty entries."""
    admitted = list(entries)
    first_fault = None
    for position, entry in enumerate(entries):
        wanted = confchange.of_entry(entry)
        if wanted is None:
            continue
        fault = _fault_of(member, wanted)
        if fault is None or member.config.disable_conf_change_validation:
            member.pending_change_index = LogIndex(member.log.last_index + position + 1)
        else:
            admitted[position] = Entry(entry.term, entry.index)
            first_fault = first_fault or fault
    return admitted, first_fault


def _fault_of(member: Member, wanted: confchange.ConfChange) -> ConfChangeFault | None:
    """Return why ``wanted`` cannot be appended.

    At most one change may be in the log unapplied, so the configuration it will meet is the
    present one.
    """
    if not _may_change(member):
        return ConfChangeFault.UNAPPLIED_CHANGE
    joint = bool(member.configuration.voters_outgoing)
    if joint and wanted.changes:
        return ConfChangeFault.ALREADY_JOINT
    if not joint and not wanted.changes:
        return ConfChangeFault.NOT_JOINT
    try:
        membership.change(member.configuration, wanted)
    except ConfChangeInvalid as invalid:
        return invalid.fault
    return None
