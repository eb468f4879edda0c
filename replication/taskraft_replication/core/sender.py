"""Send what a leader has to say: entries, snapshots, heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskraft_replication.core.errors import SnapshotTemporarilyUnavailable
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.member import Member
from taskraft_replication.core.progress import Progress, ProgressState
from taskraft_replication.core.types import (
    Entry,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
)

_APPEND: Final = MessageKind.APPEND
_PROBE: Final = ProgressState.PROBE
_LEADER: Final = RaftRole.LEADER
_SNAPSHOT: Final = ProgressState.SNAPSHOT


def broadcast_append(member: Member) -> None:
    """Send everybody what they lack; at least the commit index."""
    for to, progress in member.tracker.others:
        send_append(member, to, progress)


def send_append(member: Member, to: MemberId, progress: Progress, *, if_empty: bool = True) -> bool:
    """Send ``to`` the next entries, or a snapshot if they are gone; tell whether anything left.

    Without entries to send, an append still carries the commit index, unless ``if_empty`` is
    False.
    """
    assert member.role is _LEADER, "only a leader sends entries"
    state = progress.state
    if progress.paused_by_flow or state is _SNAPSHOT:
        return False
    log = member.log
    lo, end = progress.next, LogIndex(log.last_index + 1)
    previous = LogIndex(lo - 1)
    term = log.term(previous)
    if term is None:
        return _send_snapshot(member, to, progress)
    entries: Sequence[Entry] = ()
    # With a full window only an empty append leaves, after a heartbeat was answered: if all that
    # is on its way was lost, its rejection is what clears the window.
    if lo < end and (state is _PROBE or not progress.inflights.full):
        entries = log.entries(lo, end, member.config.message_bytes_max)
    if not entries and not if_empty:
        return False
    own_id, commit = member.config.member_id, log.commit_index
    member.messages.append(
        Message(_APPEND, to, own_id, member.term, term, previous, tuple(entries), commit)
    )
    progress.sent(len(entries), payload_bytes(entries), commit)
    return True


def _send_snapshot(member: Member, to: MemberId, progress: Progress) -> bool:
    if not progress.recent_active:
        return False  # it would only fill a queue
    try:
        snapshot = member.log.snapshot()
    except SnapshotTemporarilyUnavailable:
        return False
    assert snapshot.meta.index >= member.log.first_index() - 1, "the snapshot leaves a hole"
    progress.become_snapshot(snapshot.meta.index)
    member.send(
        Message(MessageKind.SNAPSHOT, to, member.config.member_id, member.term, snapshot=snapshot)
    )
    return True


def broadcast_heartbeat(member: Member) -> None:
    """Tell everybody that the leader lives; carry the newest read request along."""
    assert member.role is _LEADER, "only a leader sends heartbeats"
    context = member.reads.heartbeat_context
    for to, progress in member.tracker.others:
        # Never beyond what is known to match: the rest of its log may still be overwritten.
        commit = min(progress.match, member.log.commit_index)
        assert commit <= progress.match, "a heartbeat checks nothing"
        member.send(
            Message(
                MessageKind.HEARTBEAT,
                to,
                member.config.member_id,
                member.term,
                commit=commit,
                context=context,
            )
        )
        progress.sent_commit = commit


def send_timeout_now(member: Member, to: MemberId) -> None:
    """Ask ``to``, whose log is complete, to campaign without waiting."""
    member.send(Message(MessageKind.TIMEOUT_NOW, to, member.config.member_id, member.term))
