"""Follow one task back through the change feed, from its current state to its put.

Each event contains the instant at which the task entered its previous state. One search by time
therefore finds the previous event. Events without a change of state are not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from taskraft_service.queue.entities.task_state import GONE
from taskraft_service.queue.feed.change_feed import TUBE_STRIDE, ChangeFeed
from taskraft_service.queue.feed.chunk import ChangeChunk, Event, cut_row, unpack

ROWS_PER_STEP: Final = 2_000
"""Number of events that one step compares."""
STEPS_MAX: Final = 10
"""Maximum number of steps of one search; bounds the search if many events have the same instant."""


class TaskTrail:
    """The events of one task, newest first.

    Args:
        feed: the change feed.
        tube: name of the tube.
        number: number of the tube.
        task_id: id of the task.
        since_ms: instant at which the task entered its current state, in wall time.
    """

    def __init__(
        self, feed: ChangeFeed, tube: str, number: int, task_id: int, since_ms: int
    ) -> None:
        self._feed = feed
        self._tube = tube
        self._task_id = task_id
        self._since_ms = since_ms
        self._partition = (number * TUBE_STRIDE + task_id) % max(len(feed.partitions), 1)
        self._before_seq = feed.partitions[self._partition].high_seq if feed.partitions else 0
        self.is_complete = False
        """Whether the last event is the first event of the task in its tube."""

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
            self.is_complete = event.from_state == GONE
            yield found

    def _search(self) -> Iterator[tuple[int, Event] | None]:
        """Yield None for each step, then the event that entered the state, if the feed has it."""
        at = self._feed.seq_at(self._partition, self._since_ms)
        for _ in range(STEPS_MAX):
            stop = min(at + ROWS_PER_STEP, self._before_seq)
            if at >= stop:
                return
            for chunk in self._feed.read(self._partition, at, stop, ROWS_PER_STEP):
                found = self._find(chunk)
                if found is not None:
                    yield found
                    return
            at = stop
            yield None

    def _find(self, chunk: ChangeChunk) -> tuple[int, Event] | None:
        """Return the first event of the task in a chunk that changes its state."""
        ids = unpack("q", chunk.columns.task_id)
        for row, task_id in enumerate(ids):
            if task_id != self._task_id:
                continue
            event = cut_row(chunk.columns, row)
            if event.tube == self._tube and event.from_state != event.to_state:
                return chunk.from_seq + row, event
        return None
