"""Collect the work for the driver, and process the reports of the storage workers.

A ``Ready`` passes entries, a snapshot or committed entries to the workers. The workers report
durable entries, an installed snapshot, or applied entries.
"""

from __future__ import annotations

from typing import Final

from taskraft_replication.core.election import campaign_if_asked
from taskraft_replication.core.log import payload_bytes
from taskraft_replication.core.member import Member
from taskraft_replication.core.proposal import leave_joint_if_due
from taskraft_replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    Entry,
    HardState,
    LogIndex,
    Message,
    MessageKind,
    Ready,
    Snapshot,
    Term,
)

_STORAGE_APPEND: Final = MessageKind.STORAGE_APPEND
_STORAGE_APPEND_REPLY: Final = MessageKind.STORAGE_APPEND_REPLY
_STORAGE_APPLY: Final = MessageKind.STORAGE_APPLY
_STORAGE_APPLY_REPLY: Final = MessageKind.STORAGE_APPLY_REPLY


class ReadyWriter:
    """Builds ``Ready`` values from the state of a member.

    In asynchronous mode, messages to the two storage workers carry the storage work and the replies
    to release after it. In synchronous mode, replies to the member itself are kept for ``advance``;
    the other replies are sent with the messages, which the driver sends after storing.
    """

    __slots__ = ("_hard_state", "_is_async", "_member", "_own_id", "_soft_state", "_steps")

    def __init__(self, member: Member) -> None:
        self._member = member
        self._own_id = member.config.member_id
        self._is_async = member.config.async_storage_writes
        self._hard_state = member.hard_state
        self._soft_state = member.soft_state
        self._steps: list[Message] | None = None

    def has_ready(self) -> bool:
        """Return whether ``take`` would return any work."""
        member = self._member
        if member.messages or member.after_append or member.read_states:
            return True
        log, before, soft_state = member.log, self._hard_state, self._soft_state
        unstable = log.unstable
        return (
            log.commit_index != before.commit
            or unstable.offset_in_progress <= log.last_index
            or (unstable.snapshot is not None and not unstable.snapshot_in_progress)
            # The first condition saves a call for each Ready that commits nothing.
            or (log.applying_index < log.commit_index and log.has_committed)
            or member.term != before.term
            or member.vote != before.vote
            or member.role is not soft_state.role
            or member.leader != soft_state.leader
        )

    def take(self) -> Ready:
        """Return the pending work and mark it as taken."""
        assert self._steps is None, "the last Ready was not followed by advance()"
        member = self._member
        log, unstable = member.log, member.log.unstable
        entries = unstable.take_entries()
        snapshot = unstable.take_snapshot() if unstable.snapshot is not None else None
        soft_state, before = None, self._soft_state
        if member.leader != before.leader or member.role is not before.role:
            soft_state = self._soft_state = member.soft_state
        hard_state, must_sync = self._take_hard_state()
        ready = Ready(
            soft_state,
            hard_state,
            member.read_states,
            entries,
            snapshot,
            log.take_committed(),
            member.messages,
            must_sync or bool(entries),
        )
        if self._is_async:
            self._give_to_workers(ready, member.messages)
        else:
            self._keep_for_advance(ready, member.messages)
        member.messages = []
        member.after_append = []
        member.read_states = []
        return ready

    def take_steps(self) -> list[Message]:
        """Return the messages for the member itself, once the driver has done the last Ready."""
        assert self._steps is not None, "advance() without ready()"
        steps, self._steps = self._steps, None
        return steps

    def _take_hard_state(self) -> tuple[HardState | None, bool]:
        """Return the hard state if it has changed, and whether it must be fsynced on its own.

        A new commit index alone does not need an fsync, because the committed entries are durable
        on a quorum.
        """
        member = self._member
        before = self._hard_state
        commit = member.log.commit_index
        must_sync = member.term != before.term or member.vote != before.vote
        if not must_sync and commit == before.commit:
            return None, False
        self._hard_state = HardState(member.term, member.vote, commit)
        return self._hard_state, must_sync

    def _give_to_workers(self, ready: Ready, messages: list[Message]) -> None:
        own_id = self._own_id
        entries, snapshot, hard_state = ready.entries, ready.snapshot, ready.hard_state
        replies = self._member.after_append
        if entries or hard_state is not None or snapshot is not None or replies:
            report = self._append_report(snapshot)
            if report is not None:
                # The report comes last, because it removes entries from memory. A leader that
                # processes the replies to itself still looks up the terms of these entries.
                replies.append(report)
            messages.append(
                Message(
                    _STORAGE_APPEND,
                    APPEND_WORKER,
                    own_id,
                    entries=tuple(entries),
                    snapshot=snapshot,
                    hard_state=hard_state,
                    replies=tuple(replies),
                )
            )
        if ready.committed:
            committed = tuple(ready.committed)
            report = Message(_STORAGE_APPLY_REPLY, own_id, APPLY_WORKER, entries=committed)
            messages.append(
                Message(_STORAGE_APPLY, APPLY_WORKER, own_id, entries=committed, replies=(report,))
            )

    def _keep_for_advance(self, ready: Ready, messages: list[Message]) -> None:
        own_id = self._own_id
        self._steps = []
        for reply in self._member.after_append:
            (self._steps if reply.to == own_id else messages).append(reply)
        report = self._append_report(ready.snapshot)
        if report is not None:
            self._steps.append(report)
        if ready.committed:
            committed: tuple[Entry, ...] = tuple(ready.committed)
            kind = _STORAGE_APPLY_REPLY
            self._steps.append(Message(kind, own_id, APPLY_WORKER, entries=committed))

    def _append_report(self, snapshot: Snapshot | None) -> Message | None:
        """Return the report that the log is durable, or None if there is nothing to report.

        The report names the last entry of the whole log, also if this Ready has no new entries. A
        report of an earlier term is ignored, so each write reports the whole log again.
        """
        log = self._member.log
        index, term = LogIndex(0), Term(0)
        if log.unstable.entries:
            index, term = log.last_index, log.last_term
        elif snapshot is None:
            return None
        return Message(
            _STORAGE_APPEND_REPLY,
            self._own_id,
            APPEND_WORKER,
            self._member.term,
            term,
            index,
            snapshot=snapshot,
        )


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
    if member.tracker.configuration.auto_leave:
        leave_joint_if_due(member)
    if member.is_asked_to_campaign:
        campaign_if_asked(member)


def _snapshot_installed(member: Member, snapshot: Snapshot) -> None:
    member.log.unstable.snapshot_synced(snapshot.meta.index)
    member.superseded = None  # entries below it need not be applied
    applied_to(member, snapshot.meta.index, 0)
