"""Delay retention by age until a journal has the events."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from taskraft.v1.feed_service_pb2 import CommitCursorRequest, FeedCursor
from taskraft_pipeline.errors import FeedRefused
from taskraft_pipeline.feed_client import FeedClient

if TYPE_CHECKING:
    from taskraft_pipeline.offsets import Offset
    from taskraft_pipeline.options import Options

log = logging.getLogger(__name__)


class RetentionHold:
    """Commits the end of the journal as the cursor of a named consumer of the feed.

    The nodes keep later events for ``consumer_ttl_ms`` of the options after the last commit, unless
    the feed exceeds its maximum size.
    """

    def __init__(self, options: Options, consumer: str) -> None:
        self._options = options
        self._consumer = consumer
        self._is_refused = False

    def commit(self, position: Offset) -> None:
        """Report that the journal has all events before a position.

        A caller without the permission gets one log message, and the export goes on without a hold.

        Raises:
            FeedMismatch, FeedUnreachable: see `FeedClient.handle_failure`.
        """
        if self._is_refused or not self._options.consumer_ttl_ms:
            return
        request = CommitCursorRequest(
            request_id=str(uuid.uuid4()),
            client_id=self._consumer,
            consumer=self._consumer,
            cursor=FeedCursor(feed_id=position.feed_id, next_seq=position.next_seq),
            idle_ttl_ms=self._options.consumer_ttl_ms,
        )
        try:
            with FeedClient(self._options.endpoints, self._options) as client:
                client.call(lambda stub, seconds: stub.CommitCursor(request, timeout=seconds))
        except FeedRefused as error:
            self._is_refused = True
            log.warning("retention is not delayed for consumer %s: %s", self._consumer, error)
