"""Collect what the driver must do, and remember what it was told already."""

from __future__ import annotations

from replication.core.member import Member
from replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    Entry,
    HardState,
    LogIndex,
    Message,
    MessageKind,
    Ready,
    Snapshot,
    SoftState,
    Term,
)


class ReadyWriter:
    """Turns the state of a member into ``Ready`` values.

    In asynchronous mode the storage work is written into messages to the two workers, together with
    the replies that it permits. In synchronous mode the replies to the member itself are kept for
    ``advance``, the others leave with the messages, which the driver sends after storing.
    """

    __slots__ = ("_hard_state", "_member", "_soft_state", "_steps")

    def __init__(self, member: Member) -> None:
        self._member = member
        self._hard_state = member.hard_state
        self._soft_state = member.soft_state
        self._steps: list[Message] | None = None

    def has_ready(self) -> bool:
        """Tell whether ``take`` would return anything to do."""
        member = self._member
        log = member.log
        return bool(
            member.messages
            or member.after_append
            or log.unstable.has_next_entries
            or log.unstable.has_next_snapshot
            or log.has_next_committed(allow_unstable=self._applies_unstable)
            or member.read_states
            or self._changed_hard_state() is not None
            or self._changed_soft_state() is not None
        )

    def take(self) -> Ready:
        """Return what is to be done now; it will not be returned again."""
        assert self._steps is None, "the last Ready was not followed by advance()"
        member = self._member
        log = member.log
        hard_state = self._changed_hard_state()
        entries = log.unstable.next_entries()
        snapshot = log.unstable.next_snapshot()
        committed = log.next_committed(allow_unstable=self._applies_unstable)
        ready = Ready(
            soft_state=self._changed_soft_state(),
            hard_state=hard_state,
            read_states=member.read_states,
            entries=entries,
            snapshot=snapshot,
            committed=committed,
            messages=member.messages,
            must_sync=bool(entries) or self._term_or_vote_changed(hard_state),
        )
        log.unstable.accept()
        if committed:
            log.accept_applying(committed, allow_unstable=self._applies_unstable)
        if hard_state is not None:
            self._hard_state = hard_state
        if ready.soft_state is not None:
            self._soft_state = ready.soft_state
        if member.config.async_storage_writes:
            self._give_to_workers(ready, member.messages)
        else:
            self._keep_for_advance(ready, member.messages)
        member.messages = []
        member.after_append = []
        member.read_states = []
        return ready

    def take_steps(self) -> list[Message]:
        """Return what the member must be told now that the driver has done the last Ready."""
        assert self._steps is not None, "advance() without ready()"
        steps, self._steps = self._steps, None
        return steps

    @property
    def _applies_unstable(self) -> bool:
        return not self._member.config.async_storage_writes

    def _give_to_workers(self, ready: Ready, messages: list[Message]) -> None:
        replies = self._member.after_append
        own_id = self._member.config.member_id
        if ready.entries or ready.hard_state is not None or ready.snapshot or replies:
            report = self._append_report(ready.snapshot)
            if report is not None:
                # After the replies to itself: a leader looks up terms while they are in memory.
                replies.append(report)
            messages.append(
                Message(
                    MessageKind.STORAGE_APPEND,
                    APPEND_WORKER,
                    own_id,
                    entries=tuple(ready.entries),
                    snapshot=ready.snapshot,
                    hard_state=ready.hard_state,
                    replies=tuple(replies),
                )
            )
        if ready.committed:
            committed = tuple(ready.committed)
            messages.append(
                Message(
                    MessageKind.STORAGE_APPLY,
                    APPLY_WORKER,
                    own_id,
                    entries=committed,
                    replies=(self._apply_report(committed),),
                )
            )

    def _keep_for_advance(self, ready: Ready, messages: list[Message]) -> None:
        own_id = self._member.config.member_id
        self._steps = []
        for reply in self._member.after_append:
            (self._steps if reply.to == own_id else messages).append(reply)
        report = self._append_report(ready.snapshot)
        if report is not None:
            self._steps.append(report)
        if ready.committed:
            self._steps.append(self._apply_report(tuple(ready.committed)))

    def _append_report(self, snapshot: Snapshot | None) -> Message | None:
        """Return what tells this member that its log is synced, None if it has nothing to learn.

        It names the last entry of the whole log, also if none is new in this Ready: the report of
        an earlier write is ignored when the term has changed since, so each write reports anew.
        """
        log = self._member.log
        index, term = LogIndex(0), Term(0)
        if log.unstable.entries:
            index, term = log.last_index, log.last_term
        elif snapshot is None:
            return None
        return Message(
            MessageKind.STORAGE_APPEND_REPLY,
            self._member.config.member_id,
            APPEND_WORKER,
            self._member.term,
            log_term=term,
            index=index,
            snapshot=snapshot,
        )

    def _apply_report(self, committed: tuple[Entry, ...]) -> Message:
        return Message(
            MessageKind.STORAGE_APPLY_REPLY,
            self._member.config.member_id,
            APPLY_WORKER,
            entries=committed,
        )

    def _changed_hard_state(self) -> HardState | None:
        member = self._member
        before = self._hard_state
        if (
            member.log.commit_index == before.commit
            and member.term == before.term
            and member.vote == before.vote
        ):
            return None
        return member.hard_state

    def _changed_soft_state(self) -> SoftState | None:
        member = self._member
        if member.leader == self._soft_state.leader and member.role is self._soft_state.role:
            return None
        return member.soft_state

    def _term_or_vote_changed(self, hard_state: HardState | None) -> bool:
        before = self._hard_state
        return hard_state is not None and (
            hard_state.term != before.term or hard_state.vote != before.vote
        )
