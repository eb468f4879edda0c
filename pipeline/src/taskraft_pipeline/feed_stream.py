"""Follow the feed on the driver's side of a streaming query: how far is it, how far may we go."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from taskraft.v1.feed_service_pb2 import CommitCursorRequest, FeedCursor
from taskraft_pipeline.errors import FeedRefused
from taskraft_pipeline.feed import describe
from taskraft_pipeline.offset_planning import advance, resolve_position, skip_trimmed
from taskraft_pipeline.options import Bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskraft_pipeline.feed import Feed
    from taskraft_pipeline.feed_client import FeedClient
    from taskraft_pipeline.offsets import Offset
    from taskraft_pipeline.options import Options


class FeedStream:
    """Answers Spark's questions for offsets; Spark asks some 180 times a second while it idles.

    Attributes:
        endpoints: the nodes given, and those that the feed has named since.
    """

    def __init__(self, options: Options, client: FeedClient, clock: Callable[[], float]) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._feed: Feed | None = None
        self._asked_at = 0.0
        self._target: Feed | None = None
        self._committed: Offset | None = None
        self.endpoints = options.endpoints

    def initial(self) -> Offset:
        """Return where a new query begins.

        Raises:
            FeedMismatch, CursorTrimmed: ``startingOffsets`` names what is not in the feed.
        """
        feed = self._described(is_linearizable=True)
        start = resolve_position(self._options.starting or Bound.LATEST, feed)
        return skip_trimmed(start, feed, is_loss_failure=self._options.is_loss_failure)

    def fix_target(self) -> None:
        """Go no further than the feed is now, whatever is appended later."""
        self._target = self._described(is_linearizable=True)

    def latest(self, start: Offset, events_max: int | None) -> Offset:
        """Return where the next batch ends; where ``start`` is if there is nothing new.

        Everything before ``start`` is in Spark's commit log, so this is where progress is told to
        the service. That retention has passed ``start`` is found here, before Spark logs a range
        that nobody can read.

        Raises:
            FeedMismatch, CursorTrimmed: ``start`` is not in the feed, or not any more.
        """
        feed = self._recent()
        begin = skip_trimmed(start, feed, is_loss_failure=self._options.is_loss_failure)
        self._commit(start)
        # A target is reached whatever a lagging node says now: otherwise Spark would take "nothing
        # new" for the end of the query.
        high = feed.high if self._target is None else self._target.high
        return advance(begin, high, events_max)

    def newest(self) -> Offset:
        """Return how far the feed is, for the query's progress reports."""
        return resolve_position(Bound.LATEST, self._recent())

    def _recent(self) -> Feed:
        """Return the feed as of at most the poll interval ago."""
        age_ms = (self._clock() - self._asked_at) * 1_000
        if self._feed is None or age_ms >= self._options.poll_interval_ms:
            return self._described(is_linearizable=False)
        return self._feed

    def _described(self, *, is_linearizable: bool) -> Feed:
        feed = describe(self._client, is_linearizable=is_linearizable)
        self._feed, self._asked_at = feed, self._clock()
        self.endpoints = feed.reachable_at(self._options.endpoints)
        return feed

    def _commit(self, start: Offset) -> None:
        """Tell the service, once, that everything before ``start`` is safe here."""
        if not self._options.consumer or start == self._committed:
            return
        request = CommitCursorRequest(
            request_id=str(uuid.uuid4()),
            consumer=self._options.consumer,
            cursor=FeedCursor(feed_id=start.feed_id, next_seq=start.next_seq),
        )
        try:
            self._client.call(lambda stub, seconds: stub.CommitCursor(request, timeout=seconds))
        except FeedRefused as error:
            raise FeedRefused(
                f"the option consumer={self._options.consumer!r} needs CommitCursor: {error}"
            ) from error
        self._committed = start
