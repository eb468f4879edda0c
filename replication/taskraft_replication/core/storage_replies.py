"""Process the storage workers' reports: entries durable, snapshot installed, entries applied."""

from __future__ import annotations

from taskraft_replication.core.election import campaign_if_asked
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.member import Member
from taskraft_replication.core.proposal import leave_joint_if_due
from taskraft_replication.core.types import LogIndex, Message, Snapshot


def on_storage_append_reply(member: Member, reply: Message) -> None:
    """Remove durable entries from the unstable tail.

    ``index`` and ``log_term`` name the last entry of the log when the write started. A report of an
    earlier term is ignored for entries: a later leader may have replaced and then restored them,
    while the disk still holds the replacement (the ABA problem). Snapshots hold committed state and
    count in any term.
    """
    if reply.snapshot is not None:
        _snapshot_installed(member, reply.snapshot)
    if reply.index and reply.term == member.term:
        member.log.unstable.entries_synced(reply.index, reply.log_term)


def on_storage_apply_reply(member: Member, reply: Message) -> None:
    """Record that entries are applied."""
    entries = reply.entries
    assert entries, "the worker had entries to apply"
    size = payload_bytes(entries)
    applied_to(member, entries[-1].index, size)
    # A follower does not count, and a new leader has not counted proposals of earlier leaders.
    member.uncommitted_bytes = max(member.uncommitted_bytes - size, 0)


def applied_to(member: Member, index: LogIndex, size: int) -> None:
    """Advance the applied index; leave a joint configuration that is left automatically."""
    log = member.log
    log.applied_to(max(index, log.applied_index), size)
    if member.configuration.auto_leave:
        leave_joint_if_due(member)
    campaign_if_asked(member)


def _snapshot_installed(member: Member, snapshot: Snapshot) -> None:
    member.log.unstable.snapshot_synced(snapshot.meta.index)
    member.superseded = None  # entries below it are not applied any more
    applied_to(member, snapshot.meta.index, 0)
