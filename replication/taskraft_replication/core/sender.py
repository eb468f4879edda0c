"""Send a leader's messages: entries, snapshots, heartbeats."""

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
    """Send each follower the entries it lacks, or at least the commit index."""
    for to, progress in member.tracker.others:
        send_append(member, to, progress)


def send_append(member: Member, to: MemberId, progress: Progress, *, if_empty: bool = True) -> bool:
    """Send ``to`` the next entries, or a snapshot if compacted; return whether anything was sent.

    Without entries, the append still carries the commit index, unless ``if_empty`` is False.
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
    # While the inflight window is full, send only an empty append, after a heartbeat reply. If all
    # inflight appends were lost, the follower rejects the empty append, and the rejection clears
    # the window.
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
        return False  # an unreachable follower: a snapshot would only fill the queue
    try:
        snapshot = member.log.snapshot()
    except SnapshotTemporarilyUnavailable:
        return False
    assert snapshot.meta.index >= member.log.first_index() - 1, (
        "the snapshot must reach the first entry of the log"
    )
    progress.become_snapshot(snapshot.meta.index)
    member.send(
        Message(MessageKind.SNAPSHOT, to, member.config.member_id, member.term, snapshot=snapshot)
    )
    return True


def broadcast_heartbeat(member: Member) -> None:
    """Send a heartbeat to each follower, with the newest read request."""
    assert member.role is _LEADER, "only a leader sends heartbeats"
    context = member.reads.heartbeat_context
    for to, progress in member.tracker.others:
        # Never above the known match index, because later entries of the follower's log may still
        # be overwritten.
        commit = min(progress.match, member.log.commit_index)
        assert commit <= progress.match, "a heartbeat does not check the log"
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
    """Ask ``to``, whose log is complete, to campaign without waiting for its election timeout."""
    member.send(Message(MessageKind.TIMEOUT_NOW, to, member.config.member_id, member.term))
