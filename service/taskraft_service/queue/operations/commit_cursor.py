"""Store how far a consumer of the change feed has read."""

from __future__ import annotations

from taskraft_service.queue.commands.circulation import CountResult
from taskraft_service.queue.commands.consumers import CommitCursor
from taskraft_service.queue.entities.refusal import Reason, Refusal
from taskraft_service.queue.feed.feed_consumers import FeedConsumer
from taskraft_service.queue.state.queue_state import QueueState


def commit_cursor(ledger: QueueState, command: CommitCursor) -> CountResult | Refusal:
    """Store how far a consumer has come, or forget it; positions never go back."""
    consumers = ledger.consumers
    consumers.forget_idle(ledger.now_ms)
    if command.next_seq is None:
        return CountResult(int(consumers.remove(command.consumer)))
    refusal = _refusal(ledger, command)
    if refusal is not None:
        return refusal
    consumer = consumers.get(command.consumer) or FeedConsumer(command.consumer)
    for partition, seq in command.next_seq.items():
        consumer.next_seq[partition] = max(seq, consumer.next_seq.get(partition, 0))
    consumer.committed_ms = ledger.now_ms
    consumer.idle_ttl_ms = command.idle_ttl_ms
    consumers.set(consumer)
    return CountResult(1)


def _refusal(ledger: QueueState, command: CommitCursor) -> Refusal | None:
    """Return why a position cannot be stored, or None."""
    feed = ledger.feed
    if command.feed_id and command.feed_id != feed.feed_id:
        text = "the position belongs to another feed"
        return Refusal(Reason.FEED_MISMATCH, text, {"feed_id": feed.feed_id})
    assert command.next_seq is not None
    wrong = []
    for partition, seq in sorted(command.next_seq.items()):
        field = f"cursor.next_seq[{partition}]"
        if partition >= len(feed.partitions):
            wrong.append((field, f"there are {len(feed.partitions)} partitions, from 0"))
        elif seq > (high := feed.partitions[partition].high_seq):
            wrong.append((field, f"{seq} is beyond the end of the feed, {high}"))
    if wrong:
        field, text = wrong[0]
        return Refusal(Reason.INVALID_FIELD, f"{field}: {text}", {"field": field}, tuple(wrong))
    most = ledger.limits.consumers_max
    if ledger.consumers.get(command.consumer) is None and len(ledger.consumers) >= most:
        text = "there are as many consumers of the feed as there may be"
        return Refusal(Reason.LIMIT_REACHED, text, {"limit": str(most)})
    return None
