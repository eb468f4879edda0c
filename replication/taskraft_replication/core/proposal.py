"""Append proposals to a leader's log."""

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
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    Term,
)

_APPEND_REPLY: Final = MessageKind.APPEND_REPLY
_LEADER: Final = RaftRole.LEADER
_NORMAL: Final = EntryKind.NORMAL


def propose(
    member: Member, entries: Sequence[Entry], proposer: MemberId = NO_MEMBER
) -> DropReason | ConfChangeFault | None:
    """Append ``entries``, with term and index filled in, and send them to all followers.

    A follower forwards them to the leader, if forwarding is configured. ``proposer`` is the member
    that forwarded them to this one; ``NO_MEMBER``: this member proposes.

    Returns None if all entries were appended. A ``DropReason`` means that none was appended. A
    ``ConfChangeFault`` means that an empty entry was appended in place of a membership change that
    cannot be made now.
    """
    assert entries
    if member.role is not _LEADER:
        return _forward(member, entries, proposer)
    size = payload_bytes(entries)
    entry_bytes_max = member.config.entry_bytes_max
    if size > entry_bytes_max and any(len(entry.data) > entry_bytes_max for entry in entries):
        return DropReason.ENTRY_TOO_LARGE
    reason = _reason_to_drop(member, size)
    if reason is not None:
        return reason
    fault = None
    if any(entry.kind is not _NORMAL for entry in entries):
        entries, fault = _admit_changes(member, entries)
        size = payload_bytes(entries)
    member.uncommitted_bytes += size
    append_own(member, entries)
    broadcast_append(member)
    return fault


def append_unsent(leader: Member, data: bytes) -> Entry | DropReason:
    """Append one entry to the leader's log; ``send_unsent`` sends it later.

    Returns the entry, or why nothing was appended.
    """
    size = len(data)
    if size > leader.config.entry_bytes_max:
        return DropReason.ENTRY_TOO_LARGE
    reason = _reason_to_drop(leader, size)
    if reason is not None:
        return reason
    log = leader.log
    entry = Entry(leader.term, LogIndex(log.last_index + 1), data)
    log.append((entry,))
    leader.uncommitted_bytes += size
    leader.has_unsent_proposals = True
    return entry


def send_unsent(member: Member) -> None:
    """Send the entries that ``append_unsent`` has appended: one message to each follower."""
    assert member.role is _LEADER, "a change of role clears the flag"
    member.has_unsent_proposals = False
    _acknowledge_own(member)
    if member.tracker.others:
        broadcast_append(member)


def _reason_to_drop(leader: Member, size: int) -> DropReason | None:
    """Return why the leader cannot append ``size`` bytes now, or None."""
    if leader.config.member_id not in leader.tracker.progress:
        return DropReason.NOT_A_MEMBER
    if leader.transferee != NO_MEMBER:
        return DropReason.TRANSFERRING
    room = leader.config.uncommitted_bytes_max - leader.uncommitted_bytes
    # The first proposal always fits. An empty entry also fits: a leader's no-op, or the end of a
    # joint configuration.
    if size > room and leader.uncommitted_bytes and size:
        return DropReason.TOO_MANY_UNCOMMITTED
    return None


def leave_joint_if_due(member: Member) -> None:
    """Propose to leave a joint configuration that is left automatically.

    The entry is empty, so no size limit drops it. It is dropped only during a leadership transfer;
    then the next leader proposes it, or this leader after the transfer has failed.
    """
    if member.configuration.auto_leave and member.role is RaftRole.LEADER and _may_change(member):
        propose(member, [Entry(Term(0), LogIndex(0), kind=EntryKind.CONF_CHANGE_V2)])


def _may_change(leader: Member) -> bool:
    """Return whether the leader knows that all membership changes in the log are applied.

    The log may end with a change of the previous leader; ``pending_change_index`` covers that
    change (etcd-io/etcd#7625). Before an entry of its own term is committed, the leader does not
    know which entries are committed.
    """
    is_applied = leader.pending_change_index <= leader.log.applied_index
    return is_applied and leader.has_committed_in_term()


def append_own(member: Member, entries: Sequence[Entry]) -> None:
    """Append ``entries`` to the leader's log; once durable, the leader acknowledges them itself."""
    assert member.role is _LEADER, "only a leader appends entries"
    log, term = member.log, member.term
    index = log.last_index
    own = []
    for entry in entries:
        index = LogIndex(index + 1)
        own.append(Entry(term, index, entry.data, entry.kind))
    log.append(own)
    _acknowledge_own(member)


def _acknowledge_own(leader: Member) -> None:
    """Let the leader acknowledge its whole log to itself, once the log is synced."""
    own_id, index = leader.config.member_id, leader.log.last_index
    leader.after_append.append(Message(_APPEND_REPLY, own_id, own_id, leader.term, index=index))


def _forward(member: Member, entries: Sequence[Entry], proposer: MemberId) -> DropReason | None:
    if member.leader == NO_MEMBER:
        return DropReason.NO_LEADER
    if not member.config.forward_proposals:
        return DropReason.NOT_LEADER
    member.send(
        Message(
            MessageKind.PROPOSE,
            member.leader,
            proposer or member.config.member_id,
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
    """Return why ``wanted`` cannot be appended, or None.

    The log holds at most one unapplied change, so ``wanted`` will be applied to the current
    configuration.
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
