"""Count the failures of this node's change feed in the background.

Each node reads all events that it has applied, after they were applied, so no put or settlement
waits for the counts. Nothing is replicated or stored: after a start, the node counts the events of
the last 24 hours again, at most ``EVENTS_MAX``. So two nodes have the same counts of an hour that
both know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from taskraft_service.machine.failure_counts import HOUR_MS, HOURS, FailureCounts
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.feed.change_feed import ChangeFeed
from taskraft_service.queue.feed.chunk import ChangeChunk
from taskraft_service.queue.feed.failure_events import failures_in
from taskraft_service.queue.feed.feed_partition import FeedPartition

EVENTS_MAX: Final = 500_000
"""Maximum number of events that are counted again after a start, of all partitions together."""
STEP_EVENTS: Final = 512
"""Maximum number of events of a chunk with failures that are read in one step of the event loop."""
ROUND_SECONDS: Final = 1.0


class FailureCounter:
    """Reads the change feed and counts the failures in it.

    Args:
        queues: the queues of this node.
        wall_now_ms: returns the wall time of the cluster.
    """

    def __init__(self, queues: QueueLocator, wall_now_ms: Callable[[], int]) -> None:
        self._queues = queues
        self._wall_now_ms = wall_now_ms
        self.counts: Final = FailureCounts()
        self._feed_id = ""
        self._next_seqs: dict[int, int] = {}
        """Sequence number of the next event to read, by partition."""
        self._read_ms: dict[int, int] = {}
        """Instant of the last event that was read, by partition."""
        self._chunk: ChangeChunk | None = None
        """Chunk of which some events are not counted yet."""

    async def run_periodically(self) -> None:
        """Count the new events each second, until the task is cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            for _ in self.read():
                await asyncio.sleep(0)

    def read(self) -> Iterator[None]:
        """Count all events so far, in steps; the event loop can run other work after each step.

        Several callers may read at the same time; each event is counted once.
        """
        ends = {part.number: part.high_seq for part in self._queues.replicated.feed.partitions}
        has_begun = False
        while True:
            # A snapshot may replace the queue between two steps.
            feed = self._queues.replicated.feed
            if self._has_gap(feed):
                if has_begun:
                    return  # The next round begins again, so that this one ends.
                self._begin(feed)
                has_begun = True
            if not self._step(feed, ends):
                return
            yield

    def _has_gap(self, feed: ChangeFeed) -> bool:
        """Return whether events were lost for this reader, or are too many to read."""
        if feed.feed_id != self._feed_id:
            return True
        events_max = 2 * _share(feed)
        for part in feed.partitions:
            at = self._next_seqs.get(part.number)
            if at is not None and not (
                max(part.low_seq, part.high_seq - events_max) <= at <= part.high_seq
            ):
                return True
        return False

    def _begin(self, feed: ChangeFeed) -> None:
        """Drop all counts, and count from 24 hours ago."""
        self._feed_id = feed.feed_id
        self._next_seqs.clear()
        self._read_ms.clear()
        self._chunk = None
        self.counts.clear(self._wall_now_ms() - HOURS * HOUR_MS)

    def _step(self, feed: ChangeFeed, ends: dict[int, int]) -> bool:
        """Find where to begin in a partition, or read some events; return whether there is more.

        The partition that is furthest behind in time is read first, so that events of all
        partitions are counted roughly in the order of their instants. A chunk is finished first.
        """
        for part in feed.partitions:
            if part.number not in self._next_seqs:
                self._find_first(feed, part)
                return True
        behind = [
            part.number
            for part in feed.partitions
            if self._next_seqs[part.number] < min(ends.get(part.number, 0), part.high_seq)
        ]
        if not behind:
            return False
        opened = self._chunk
        if opened is not None and opened.partition in behind:
            number = opened.partition
        else:
            number = min(behind, key=lambda one: self._read_ms[one])
        until = self._count(feed, number, self._next_seqs[number])
        self._next_seqs[number] = until
        self._read_ms[number] = feed.instant(number, until - 1)
        return True

    def _count(self, feed: ChangeFeed, partition: int, at: int) -> int:
        """Count failures from an event on; return the number of the event to go on with.

        The texts of a chunk are decoded once, although its events are counted in several steps.
        """
        chunk = self._chunk
        if (
            chunk is None
            or chunk.partition != partition
            or not chunk.from_seq <= at < chunk.next_seq
        ):
            until, chunk = feed.failure_chunk(partition, at, STEP_EVENTS)
            if chunk is None:
                return until
        until = min(at + STEP_EVENTS, chunk.next_seq)
        for event in failures_in(chunk.columns, at - chunk.from_seq, until - chunk.from_seq):
            self.counts.add(event)
        self._chunk = chunk if until < chunk.next_seq else None
        return until

    def _find_first(self, feed: ChangeFeed, part: FeedPartition) -> None:
        """Find the first event to count in a partition.

        If earlier events of the last 24 hours are not read, all counts begin after the first event
        that is.
        """
        counts, number = self.counts, part.number
        low = max(part.low_seq, part.high_seq - _share(feed))
        first = max(low, feed.seq_at(number, counts.since_ms))
        if low > 0 and first == low:
            is_empty = first == part.high_seq
            known_ms = part.view().high_ms if is_empty else feed.instant(number, first)
            counts.since_ms = max(counts.since_ms, known_ms + 1)
        self._next_seqs[number] = first
        self._read_ms[number] = 0


def _share(feed: ChangeFeed) -> int:
    """Return the number of events of a partition that are counted again."""
    return EVENTS_MAX // max(len(feed.partitions), 1)
