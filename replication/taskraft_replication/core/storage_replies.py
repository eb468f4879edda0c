"""Take in what the storage workers report: entries synced, snapshots installed, entries applied."""

from __future__ import annotations

from taskraft_replication.core.election import campaign_if_asked
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.member import Member
from taskraft_replication.core.proposal import leave_joint_if_due
from taskraft_replication.core.types import LogIndex, Message, Snapshot


def on_storage_append_reply(member: Member, reply: Message) -> None:
    """Move what is synced out of the unstable tail.

    ``index`` and ``log_term`` name the last entry of the log when the write began. A report of an
    earlier term says nothing about entries: they may have been replaced and, by a later leader, put
    back, while the disk still holds the replacement (the ABA problem). Snapshots hold committed
    state and are good in any term.
    """
    if reply.snapshot is not None:
        _snapshot_installed(member, reply.snapshot)
    if reply.index and reply.term == member.term:
        member.log.unstable.entries_synced(reply.index, reply.log_term)


def on_storage_apply_reply(member: Member, reply: Message) -> None:
    """Record that entries are applied."""
    entries = reply.entries
    assert entries, "nothing was given to the worker"
    size = payload_bytes(entries)
    applied_to(member, entries[-1].index, size)
    # A follower counts nothing, a new leader did not count what earlier ones proposed.
    member.uncommitted_bytes = max(member.uncommitted_bytes - size, 0)


def applied_to(member: Member, index: LogIndex, size: int) -> None:
    """Move the applied index forward; leave a joint configuration that is to be left by itself."""
    log = member.log
    log.applied_to(max(index, log.applied_index), size)
    if member.configuration.auto_leave:
        leave_joint_if_due(member)
    campaign_if_asked(member)


def _snapshot_installed(member: Member, snapshot: Snapshot) -> None:
    member.log.unstable.snapshot_synced(snapshot.meta.index)
    member.superseded = None  # entries below it are not applied any more
    applied_to(member, snapshot.meta.index, 0)
