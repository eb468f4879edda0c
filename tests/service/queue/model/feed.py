"""Cursors of feed consumers, and trims of the change feed, in the naive queue."""

from __future__ import annotations

from taskraft_service.queue.entities.refusal import CountResult, Reason
from taskraft_service.queue.feed.change_feed import TUBE_STRIDE
from taskraft_service.queue.feed.feed_consumers import ConsumerView
from taskraft_service.queue.operations.feed import CommitCursor, TrimFeed

FEED_ID, PARTITIONS = "feed", 3
"""The feed that the first command of every machine creates."""


class NaiveFeed:
    """All events, the partition of each event, and the first sequence number after trims."""

    def partition_of(self, task):
        return (task["tube"]["number"] * TUBE_STRIDE + task["id"]) % PARTITIONS

    def high(self, partition):
        return self.partitions.count(partition)

    def kept_events(self):
        """Return the events that no trim has removed."""
        seen, kept = [0] * PARTITIONS, []
        for event, partition in zip(self.events, self.partitions, strict=True):
            if seen[partition] >= self.low[partition]:
                kept.append(event)
            seen[partition] += 1
        return kept

    def do_trimfeed(self, command: TrimFeed):
        before = sum(self.low)
        for partition, low in command.low_seq.items():
            if partition < PARTITIONS:
                self.low[partition] = max(self.low[partition], min(low, self.high(partition)))
        return CountResult(sum(self.low) - before)

    def kept_consumers(self, ttls=2):
        """Return the consumers that made a commit within so many idle TTLs, by name."""
        return {
            name: one
            for name, one in sorted(self.consumers.items())
            if self.now < one.committed_ms + ttls * one.idle_ttl_ms
        }

    def do_commitcursor(self, command: CommitCursor):
        self.consumers = self.kept_consumers()
        name, positions = command.consumer, command.next_seq
        if positions is None:
            return CountResult(int(self.consumers.pop(name, None) is not None))
        if command.feed_id not in ("", FEED_ID):
            return Reason.FEED_MISMATCH
        for partition, seq in positions.items():
            if partition >= PARTITIONS or seq > self.high(partition):
                return Reason.INVALID_FIELD
        known = self.consumers.get(name)
        if not known and len(self.consumers) >= self.limits.consumers_max:
            self.consumers = self.kept_consumers(ttls=1)
            if len(self.consumers) >= self.limits.consumers_max:
                return Reason.LIMIT_REACHED
        reached = dict(known.next_seq) if known else {}
        for partition, seq in positions.items():
            reached[partition] = max(seq, reached.get(partition, 0))
        self.consumers[name] = ConsumerView(name, reached, self.now, command.idle_ttl_ms)
        return CountResult(1)
