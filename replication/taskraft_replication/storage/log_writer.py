"""Join the core's storage work into batches with one fsync each, then release the replies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from taskraft_replication.core.types import Entry, HardState, LogIndex, Message, MessageKind
from taskraft_replication.effects import Effects
from taskraft_replication.storage.group_storage import GroupStorage


class WriteListener(Protocol):
    """Receives the results of the log writer."""

    def written(self, replies: Sequence[Message]) -> None:
        """Deliver replies whose preconditions are durable now."""

    def synced(self, entries: int, log_bytes: int) -> None:
        """Count a finished batch of writes."""


class LogWriter:
    """The queue before the storage worker: work that arrives during a write joins the next batch.

    Replies are released in the order of the requests. A later write may replace entries of an
    earlier write before they reach the disk. The earlier replies are then released late but are
    still true, because the replacing entries are durable by then.
    """

    def __init__(self, storage: GroupStorage, effects: Effects, listener: WriteListener) -> None:
        hard_state, _ = storage.view.initial_state()
        self._storage = storage
        self._effects = effects
        self._listener = listener
        self._queue: deque[Message] = deque()
        self.is_busy = False
        """Whether a write, or the installation of a snapshot, is running."""
        self.writes = 0
        """Number of writes that have begun."""
        self.is_due = False
        """Whether work is queued behind a write that has ended since the last ``advance``."""
        self._term_and_vote = (hard_state.term, hard_state.vote)
        self.durable_term = hard_state.term
        """Last term that is known to be durable."""
        self._durable_vote = hard_state.vote
        """Vote in ``durable_term``."""
        self._commit = hard_state.commit

    @property
    def is_idle(self) -> bool:
        """Return whether no write is running or queued."""
        return not self.is_busy and not self._queue

    @property
    def commit(self) -> LogIndex:
        """Return the last commit index that the core asked to store."""
        return self._commit

    def has_stored(self, hard_state: HardState) -> bool:
        """Return whether term and vote are known to be durable."""
        return (self.durable_term, self._durable_vote) == (hard_state.term, hard_state.vote)

    @property
    def next_snapshot(self) -> Message | None:
        """Return the head of the queue if it is a snapshot and no write is running."""
        if self.is_busy or not self._queue or self._queue[0].snapshot is None:
            return None
        return self._queue[0]

    def holds_snapshot(self, name: str) -> bool:
        """Return whether the snapshot with this content is waiting to be installed."""
        waiting = [each.snapshot for each in self._queue if each.snapshot is not None]
        return any(each.data.decode() == name for each in waiting)

    def put(self, message: Message) -> None:
        """Queue a message to the append worker."""
        self._queue.append(message)

    def begin_snapshot(self) -> HardState | None:
        """Take the snapshot at the head of the queue; writes wait until ``end_snapshot``.

        Returns the hard state to store with the snapshot, if it changed.
        """
        message = self._queue.popleft()
        assert message.snapshot is not None
        self.is_busy = True
        return self._changed(message.hard_state) if message.hard_state is not None else None

    def end_snapshot(self, message: Message) -> None:
        """Release the replies of an installed snapshot."""
        self.is_busy = False
        self.is_due = bool(self._queue)
        self.durable_term, self._durable_vote = self._term_and_vote
        self._listener.written(message.replies)

    def advance(self, held: Sequence[Message] = ()) -> None:
        """Start the next batch unless one is running.

        The messages in ``held`` are released once all work queued so far is durable.
        """
        if held:
            self._queue.append(Message(MessageKind.STORAGE_APPEND, replies=tuple(held)))
        self.is_due = False
        while self._queue and not self.is_busy and self._queue[0].snapshot is None:
            hard_state: HardState | None = None
            entries: list[Entry] = []
            replies: list[Message] = []
            while self._queue and self._queue[0].snapshot is None:
                message = self._queue.popleft()
                hard_state = message.hard_state or hard_state
                if message.entries:
                    _overwrite(entries, message.entries)
                replies += message.replies
            if hard_state is not None:
                hard_state = self._changed(hard_state)
            if hard_state is None and not entries:
                # Only the commit index changed; the next record stores it.
                if replies:
                    self._listener.written(replies)
            else:
                self._write(hard_state, entries, replies)

    def _write(
        self, hard_state: HardState | None, entries: list[Entry], replies: list[Message]
    ) -> None:
        self.is_busy = True
        self.writes += 1
        work: Callable[[], int] = partial(self._storage.store, hard_state, entries, self._commit)
        self._effects.store(work, partial(self._written, hard_state, entries, replies))

    def _written(
        self,
        hard_state: HardState | None,
        entries: list[Entry],
        replies: list[Message],
        log_bytes: int,
    ) -> None:
        self.is_busy = False
        self.is_due = bool(self._queue)
        if hard_state is not None:
            self.durable_term, self._durable_vote = hard_state.term, hard_state.vote
        if entries:
            self._storage.view.publish(entries)
        self._listener.written(replies)
        self._listener.synced(len(entries), log_bytes)

    def _changed(self, hard_state: HardState) -> HardState | None:
        """Return the hard state if it must be fsynced; a new commit index alone needs no fsync."""
        self._commit = hard_state.commit
        term_and_vote = (hard_state.term, hard_state.vote)
        if term_and_vote == self._term_and_vote:
            return None
        self._term_and_vote = term_and_vote
        return hard_state


def _overwrite(entries: list[Entry], later: Sequence[Entry]) -> None:
    """Append ``later``, which is not empty, replacing entries with the same or higher indexes."""
    if entries and later[0].index <= entries[-1].index:
        del entries[max(0, later[0].index - entries[0].index) :]
    entries += later
