"""Follow one task back through the change feed, from its current state to its put.

Each event contains the instant at which the task entered its previous state. One search by time
therefore finds the previous event. Events without a change of state are not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.queue.entities.task_state import GONE, State
from taskraft_service.queue.feed.change_feed import TUBE_STRIDE, ChangeFeed
from taskraft_service.queue.feed.chunk import ChangeChunk, Event, cut_row, unpack

ROWS_PER_STEP: Final = 2_000
"""Number of events that one step compares."""
STEPS_MAX: Final = 32
"""Maximum number of steps of one search: many events may have the same instant, and the search for
the last event of a task that has left its tube knows no instant."""


class TaskTrail:
    """The events of one task, newest first.

    Args:
        feed: the change feed.
        tube: name of the tube.
        number: number of the tube.
        task_id: id of the task.
        state: state of the task; GONE: the task has left its tube.
        since_ms: instant at which the task entered its state, in wall time; None: unknown.
        before_ms: only events before this instant, in wall time;
            0: all events.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        tube: str,
        number: int,
        task_id: int,
        state: State,
        since_ms: int | None,
        before_ms: int = 0,
    ) -> None:
        self._feed = feed
        self._tube = tube
        self._task_id = task_id
        self._state = state
        self._since_ms = since_ms
        self._partition = (number * TUBE_STRIDE + task_id) % max(len(feed.partitions), 1)
        self._before_seq = feed.partitions[self._partition].high_seq if feed.partitions else 0
        if before_ms and feed.partitions:
            self._before_seq = min(self._before_seq, feed.seq_at(self._partition, before_ms))
        self.is_complete = False
        """Whether the last event is the first event of the task in its tube."""

    @property
    def begins_ms(self) -> int:
        """Wall time of the oldest event of the partition; 0: none."""
        if not self._feed.partitions:
            return 0
        part = self._feed.partitions[self._partition]
        oldest = self._feed.events(part.number, part.low_seq, min(part.low_seq + 1, part.high_seq))
        return next((event.at_ms for _, event in oldest), 0)

    def steps(self) -> Iterator[tuple[int, Event] | None]:
        """Yield the events with their sequence numbers, and None between two steps of a search."""
        while not self.is_complete and self._feed.partitions:
            found = None
            for step in self._search():
                found = step
                yield None
            if found is None:
                return
            seq, event = found
            self._before_seq, self._since_ms = seq, event.since_ms
            self._state = State(event.from_state)
            self.is_complete = event.from_state == GONE
            yield found

    def _search(self) -> Iterator[tuple[int, Event] | None]:
        """Yield None for each step back, then the event that led to the state, if found."""
        low_seq, stop = self._range()
        for _ in range(STEPS_MAX):
            at = max(stop - ROWS_PER_STEP, low_seq)
            if at >= stop:
                return
            chunks = list(self._feed.read(self._partition, at, stop, ROWS_PER_STEP))
            for chunk in reversed(chunks):
                found = self._find(chunk)
                if found is not None:
                    yield found
                    return
            stop = at
            yield None

    def _range(self) -> tuple[int, int]:
        """Return the first sequence number to search, and the last one plus 1."""
        if self._since_ms is None:
            return self._feed.partitions[self._partition].low_seq, self._before_seq
        after_seq = self._feed.seq_at(self._partition, self._since_ms + 1)
        return self._feed.seq_at(self._partition, self._since_ms), min(after_seq, self._before_seq)

    def _find(self, chunk: ChangeChunk) -> tuple[int, Event] | None:
        """Return the last event of the task in a chunk that led to the state."""
        ids = unpack("q", chunk.columns.task_id)
        for row in reversed([row for row, task_id in enumerate(ids) if task_id == self._task_id]):
            event = cut_row(chunk.columns, row)
            if event.tube == self._tube and event.from_state != event.to_state == self._state:
                return chunk.from_seq + row, event
        return None
