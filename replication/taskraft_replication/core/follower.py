"""Handle messages from the leader: entries, commit index, snapshots."""

from __future__ import annotations

from typing import Final

from taskraft_replication.core import membership
from taskraft_replication.core.config import ReadOnly
from taskraft_replication.core.member import Member
from taskraft_replication.core.roles import become_follower
from taskraft_replication.core.trace import MessageDropReason, SnapshotRestored
from taskraft_replication.core.types import (
    NO_MEMBER,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    Snapshot,
    Term,
)

_APPEND_REPLY: Final = MessageKind.APPEND_REPLY
_FOLLOWER: Final = RaftRole.FOLLOWER


def on_append(member: Member, append: Message) -> None:
    """Append new entries; acknowledge them once they are durable."""
    _follow_sender(member, append)
    log = member.log
    previous = append.index
    if previous < log.commit_index:
        # Entries below the commit index are equal in both logs, and this log may have compacted
        # them.
        _accept(member, append, log.commit_index)
        return
    matched = log.append_after(previous, append.log_term, append.entries)
    if matched is None:
        _reject(member, append)
        return
    # Do not commit beyond the entries that this message has checked, because later entries of this
    # log may still be overwritten.
    before = log.commit_index
    log.commit_to(min(append.commit, matched))
    assert log.commit_index <= max(before, previous + len(append.entries)), (
        "the entries were not checked"
    )
    _accept(member, append, matched)


def on_heartbeat(member: Member, heartbeat: Message) -> None:
    """Advance the commit index, which the leader has limited to the known match index."""
    _follow_sender(member, heartbeat)
    member.log.commit_to(heartbeat.commit)
    member.send(
        Message(
            MessageKind.HEARTBEAT_REPLY,
            heartbeat.sender,
            member.config.member_id,
            member.term,
            context=heartbeat.context,
        )
    )


def on_snapshot(member: Member, message: Message) -> None:
    """Restore the snapshot, unless the log already has its entries.

    Acknowledge nothing above the commit index: entries there were not compared with the leader's.
    """
    _follow_sender(member, message)
    assert message.snapshot is not None
    _restore(member, message, message.snapshot)
    _accept(member, message, member.log.commit_index)


def leader_alive(member: Member, sender: MemberId, term: Term) -> bool:
    """Restart the election timeout if ``sender`` is known to lead in the current ``term``.

    Called when a part of a long message has arrived. Returns whether the timeout was restarted.
    """
    if member.role is not _FOLLOWER or member.leader != sender or member.term != term:
        return False
    member.election_elapsed = 0
    return True


def forget_leader(member: Member) -> None:
    """Forget the leader without leaving the term, so that this member may vote for another member.

    Has no effect on members that are not followers. Has no effect with read leases either, because
    they rely on not voting for another member.
    """
    if member.config.read_only is not ReadOnly.LEASE_BASED and member.role is _FOLLOWER:
        member.leader = NO_MEMBER


def _follow_sender(member: Member, message: Message) -> None:
    """Accept the sender as the leader of this term."""
    if member.role is not _FOLLOWER:
        assert member.role is not RaftRole.LEADER, "two leaders in one term"
        become_follower(member, message.term)
    assert member.leader in (NO_MEMBER, message.sender), "two leaders in one term"
    member.election_elapsed = 0
    member.leader = message.sender


def _accept(member: Member, message: Message, index: LogIndex) -> None:
    member.after_append.append(
        Message(
            _APPEND_REPLY,
            message.sender,
            member.config.member_id,
            member.term,
            index=index,
        )
    )


def _reject(member: Member, append: Message) -> None:
    """Reject an append with a hint where the logs may match, so that the leader can skip ahead."""
    hint = min(append.index, member.log.last_index)
    hint, hint_term = member.log.last_not_above(hint, append.log_term)
    member.after_append.append(
        Message(
            _APPEND_REPLY,
            append.sender,
            member.config.member_id,
            member.term,
            log_term=hint_term,
            index=append.index,
            reject=True,
            reject_hint=hint,
        )
    )


def _restore(member: Member, message: Message, snapshot: Snapshot) -> None:
    """Restore ``snapshot`` if it is above the commit index.

    The snapshot replaces the configuration, even a later configuration that was not committed.
    """
    meta = snapshot.meta
    log = member.log
    if meta.index <= log.commit_index:
        return
    assert meta.term <= message.term, "the leader's snapshot has no later term"
    configuration = membership.restored(meta.conf_state)
    if member.config.member_id not in membership.members(configuration):
        member.drop(message, MessageDropReason.NOT_FOUND_IN_SNAPSHOT)
        return
    if log.matches(meta.index, meta.term):
        log.commit_to(meta.index)
        return
    member.superseded = member.superseded or member.configuration
    log.restore(snapshot)
    member.adopt(configuration)
    member.tell(SnapshotRestored(meta.index, meta.term))
