"""Compute the offsets at which a query begins and at which its next batch ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from taskraft_pipeline.errors import CursorTrimmed
from taskraft_pipeline.feed import trimmed_text
from taskraft_pipeline.offsets import Offset, share_by_lag
from taskraft_pipeline.options import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taskraft_pipeline.feed import Feed

log = logging.getLogger(__name__)


def resolve_position(wanted: Bound | Offset, feed: Feed) -> Offset:
    """Return a position in all partitions; unnamed partitions begin at their oldest event.

    Raises:
        FeedMismatch: the position belongs to another feed.
    """
    match wanted:
        case Offset():
            feed.check(wanted.feed_id)
            return Offset(feed.feed_id, {**feed.low, **wanted.next_seq})
        case Bound.EARLIEST:
            return Offset(feed.feed_id, feed.low)
        case Bound.LATEST:
            return Offset(feed.feed_id, feed.high)


def skip_trimmed(start: Offset, feed: Feed, *, is_loss_failure: bool) -> Offset:
    """Return the first position at or after ``start`` that retention has kept.

    Raises:
        FeedMismatch: the position belongs to another feed.
        CursorTrimmed: retention has removed events, and loss is a failure.
    """
    feed.check(start.feed_id)
    lifted = dict(start.next_seq)
    for partition, low in feed.low.items():
        position = lifted.setdefault(partition, 0)
        if low <= position:
            continue
        if is_loss_failure:
            raise CursorTrimmed(trimmed_text(partition, position, {"low": low}))
        log.warning("partition %s: %s events were trimmed", partition, low - position)
        lifted[partition] = low
    return Offset(start.feed_id, lifted)


def advance(start: Offset, high: Mapping[int, int], events_max: int | None) -> Offset:
    """Return the position at most ``events_max`` events after ``start``.

    Each partition gets a share of the events in proportion to its lag, the number of its unread
    events.

    The position never moves back, even if ``high`` comes from a lagging node.
    """
    lags = start.lags(high)
    parts = lags if events_max is None else share_by_lag(events_max, lags)
    position = dict(start.next_seq)
    for partition, events in parts.items():
        position[partition] = position.get(partition, 0) + events
    return Offset(start.feed_id, position)
