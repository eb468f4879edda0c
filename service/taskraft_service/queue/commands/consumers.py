"""Keep how far consumers of the change feed have come."""

from __future__ import annotations

from collections.abc import Mapping

from taskraft_service.queue.values import value


@value
class CommitCursor:
    """Store how far a consumer has come, by partition; ``next_seq`` None: forget the consumer.

    ``feed_id`` empty: whatever the feed is. ``idle_ttl_ms``: forget the consumer after so long
    without another. Answer: ``CountResult``, of consumers that are stored or forgotten.
    """

    consumer: str
    feed_id: str
    next_seq: Mapping[int, int] | None
    idle_ttl_ms: int
    request_id: str = ""
    request_hash: int = 0
