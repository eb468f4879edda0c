"""Commit the cursors of consumers of the change feed, and trim old events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft_service.queue.entities.quotas import share_refusal, total_refusal
from taskraft_service.queue.entities.refusal import CountResult, Reason, Refusal
from taskraft_service.queue.feed.feed_consumers import FeedConsumer
from taskraft_service.queue.operations.command_definition import (
    COUNT_ANSWER,
    CommandDefinition,
    Idempotent,
    predict_nothing,
    replicated,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value


@value
class CommitCursor:
    """Store the cursor of a feed consumer, by partition.

    ``next_seq`` None: remove the consumer.

    ``owner``: the principal that owns a new consumer; empty: there is no access control.
    ``feed_id`` empty: do not check the feed. ``idle_ttl_ms``: time without a commit after which the
    consumer delays retention no longer; after twice this time it is removed. Answer:
    ``CountResult``, the number of stored or removed consumers.
    """

    consumer: str
    feed_id: str
    next_seq: Mapping[int, int] | None
    idle_ttl_ms: int
    request_id: str = ""
    request_hash: int = 0
    owner: str = ""


@value
class TrimFeed(Idempotent):
    """Remove the events below the given sequence numbers, by partition.

    Answer: ``CountResult``.
    """

    low_seq: Mapping[int, int]


def commit_cursor(state: QueueState, command: CommitCursor) -> CountResult | Refusal:
    """Store the cursor of a consumer, or remove the consumer; a cursor never moves back.

    At the maximum number of consumers, also of those of its owner, a new consumer replaces all idle
    ones.
    """
    consumers = state.consumers
    consumers.remove_expired(state.now_ms)
    if command.next_seq is None:
        return CountResult(int(consumers.remove(command.consumer)))
    refusal = _refusal_of_position(state, command)
    if refusal is not None:
        return refusal
    consumer = consumers.get(command.consumer)
    if consumer is None:
        if _refusal_to_add(state, command.owner) is not None:
            consumers.remove_idle(state.now_ms)
        refusal = _refusal_to_add(state, command.owner)
        if refusal is not None:
            return refusal
        consumer = FeedConsumer(command.consumer, command.owner)
    for partition, seq in command.next_seq.items():
        consumer.next_seq[partition] = max(seq, consumer.next_seq.get(partition, 0))
    consumer.committed_ms = state.now_ms
    consumer.idle_ttl_ms = command.idle_ttl_ms
    consumers.set(consumer)
    return CountResult(1)


def _refusal_to_add(state: QueueState, owner: str) -> Refusal | None:
    """Return why a principal cannot create a further consumer, or None."""
    consumers, limits = state.consumers, state.limits
    what, advice = "consumers of the change feed", "remove unused ones"
    if len(consumers) >= limits.consumers_max:
        return total_refusal("consumers_max", limits.consumers_max, what, advice)
    most = limits.consumers_share_max
    if consumers.owned.of(owner) >= most:
        return share_refusal("consumers_share_max", most, what, owner, advice)
    return None


def _refusal_of_position(state: QueueState, command: CommitCursor) -> Refusal | None:
    """Return a refusal if a cursor is not of this feed or is beyond the feed's end, or None."""
    feed = state.feed
    if command.feed_id and command.feed_id != feed.feed_id:
        text = "the cursor belongs to another feed; start from a cursor of this feed"
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
    return None


def trim_feed(state: QueueState, command: TrimFeed) -> CountResult:
    """Remove the events below the given sequence numbers."""
    return CountResult(state.feed.trim(command.low_seq))


DEFINITIONS: Final = (
    CommandDefinition(
        CommitCursor, commit_cursor, predict=predict_nothing, side=replicated, answer=COUNT_ANSWER
    ),
    CommandDefinition(TrimFeed, trim_feed, predict=predict_nothing, side=replicated, answer=None),
)
