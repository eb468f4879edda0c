"""Compute the offsets of a streaming query on the driver."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from taskraft.v1.feed_service_pb2 import CommitCursorRequest, FeedCursor
from taskraft_pipeline.errors import FeedRefused
from taskraft_pipeline.feed import FeedNodes, describe
from taskraft_pipeline.offset_planning import advance, resolve_position, skip_trimmed
from taskraft_pipeline.options import Bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft_pipeline.feed import Feed
    from taskraft_pipeline.feed_client import FeedClient
    from taskraft_pipeline.offsets import Offset
    from taskraft_pipeline.options import Options


class FeedStream:
    """Answers Spark's requests for offsets; an idle query makes about 180 requests per second.

    Attributes:
        nodes: the given nodes, and the nodes that the feed has listed since.
    """

    def __init__(self, options: Options, client: FeedClient, clock: Callable[[], float]) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._feed: Feed | None = None
        self._asked_at = 0.0
        self._target: Feed | None = None
        self._committed: Offset | None = None
        self.nodes = FeedNodes(options.endpoints)

    def initial(self) -> Offset:
        """Return the offset at which a new query begins.

        Raises:
            FeedMismatch, CursorTrimmed: the feed does not contain ``startingOffsets``.
        """
        feed = self._described(is_linearizable=True)
        start = resolve_position(self._options.starting or Bound.LATEST, feed)
        return skip_trimmed(start, feed, is_loss_failure=self._options.is_loss_failure)

    def fix_target(self) -> None:
        """Limit the query to the current end of the feed."""
        self._target = self._described(is_linearizable=True)

    def latest(self, start: Offset, events_max: int | None) -> Offset:
        """Return the offset at which the next batch ends; ``start`` if there is nothing new.

        Everything before ``start`` is in Spark's commit log, so this method reports progress to the
        service. It also detects that retention has passed ``start``, before Spark logs a range that
        cannot be read.

        Raises:
            FeedMismatch, CursorTrimmed: the feed does not contain ``start``.
        """
        feed = self._recent()
        begin = skip_trimmed(start, feed, is_loss_failure=self._options.is_loss_failure)
        self._commit(start)
        # Use the fixed target even if a lagging node reports less. Otherwise Spark would take
        # "nothing new" for the end of the query.
        high = feed.high if self._target is None else self._target.high
        return advance(begin, high, events_max)

    def newest(self) -> Offset:
        """Return the end of the feed, for the query's progress reports."""
        return resolve_position(Bound.LATEST, self._recent())

    def _recent(self) -> Feed:
        """Return the state of the feed, at most one poll interval old."""
        age_ms = (self._clock() - self._asked_at) * 1_000
        if self._feed is None or age_ms >= self._options.poll_interval_ms:
            return self._described(is_linearizable=False)
        return self._feed

    def _described(self, *, is_linearizable: bool) -> Feed:
        feed = describe(self._client, is_linearizable=is_linearizable)
        self._feed, self._asked_at = feed, self._clock()
        self.nodes = feed.nodes(self._options.endpoints)
        return feed

    def _commit(self, start: Offset) -> None:
        """Report once to the service that everything before ``start`` is processed."""
        options = self._options
        if not (options.consumer and options.consumer_ttl_ms) or start == self._committed:
            return
        request = CommitCursorRequest(
            request_id=str(uuid.uuid4()),
            client_id=options.consumer,
            consumer=options.consumer,
            cursor=FeedCursor(feed_id=start.feed_id, next_seq=start.next_seq),
            idle_ttl_ms=options.consumer_ttl_ms,
        )
        try:
            self._client.call(lambda stub, seconds: stub.CommitCursor(request, timeout=seconds))
        except FeedRefused as error:
            raise FeedRefused(
                f"the option consumer={self._options.consumer!r} needs CommitCursor: {error}"
            ) from error
        self._committed = start
