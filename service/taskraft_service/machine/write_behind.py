"""Write the changes of applied entries to the database in batches, each in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from taskraft_replication.core.types import Entry, EntryKind
from taskraft_service.machine.collect_policy import (
    BACKLOG_ENTRIES,
    POSTPONED_BATCHES_MAX,
    POSTPONED_BYTES_MAX,
    CollectPolicy,
)
from taskraft_service.machine.open_database import OpenDatabase


class WriteBehind:
    """The batches of one database.

    While a batch is being written, no entry may be applied.

    Args:
        state: the database and its queue.
        pace: limits of the changes that are not written yet.
        monotonic_ms: reads the clock for ``pace``; results never depend on it.
    """

    def __init__(
        self, state: OpenDatabase, pace: CollectPolicy, monotonic_ms: Callable[[], int]
    ) -> None:
        self._state = state
        self._pace = pace
        self._monotonic_ms = monotonic_ms
        self._steps: Iterator[None] = iter(())
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.is_writing = False
        """Whether a batch is being written."""
        self.is_full = False
        """Whether so many changes wait for the disk that no entry may add more."""
        self.waiting_bytes = 0
        """Size of the entries since the last batch."""
        self._due_ms = self._monotonic_ms() + self._pace.span_ms

    def is_due(self, entries: Sequence[Entry]) -> bool:
        """Return whether to write a batch now, after the application of ``entries``.

        A batch that would block is postponed.
        """
        if any(each.kind is not EntryKind.NORMAL for each in entries):
            # A snapshot for a new member must contain the change that adds the member, and there
            # may be no further entry that would trigger a batch.
            return True
        queue, written = self._state.queue, self._state.written_index
        if not written:
            # Write a batch after the first entry, so that a new member can get the state as a
            # snapshot.
            return True
        is_backlog = len(entries) >= BACKLOG_ENTRIES
        pace, (changed, fresh) = self._pace, queue.unwritten_tasks
        is_due = (
            changed >= pace.tasks
            or self.waiting_bytes >= pace.content_bytes
            or (not is_backlog and fresh >= pace.fresh)
            or (not is_backlog and queue.applied_index - written >= pace.entries)
            or self._monotonic_ms() >= self._due_ms
        )
        if not is_due or not self._state.store.is_choked:
            return is_due
        self.is_full = (
            changed >= POSTPONED_BATCHES_MAX * pace.tasks
            or self.waiting_bytes >= POSTPONED_BYTES_MAX
        )
        return False

    def begin(self) -> None:
        """Begin to write all changes, with the applied index, in one batch.

        A small batch is written at once.
        """
        self._steps, self.is_writing = self._state.collect_steps(), True
        if not self._state.needs_steps:
            self.write_some()

    def write_some(self) -> None:
        """Do the next step of the batch, in some milliseconds."""
        for _ in self._steps:
            return
        self._begin_anew()

    def end(self) -> None:
        """Do all steps that are left of a batch that is being written."""
        while self.is_writing:
            self.write_some()
