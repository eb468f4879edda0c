"""Judge cluster time against true time: no deadline fires early, and time never goes back."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex
from taskraft_service.clock.agreement import WALL_TOLERANCE_MS
from taskraft_service.clock.group_clock import AGREED, LEAST
from tests.sim.clocks import DRIFT, SKEW_MS
from tests.sim.machine import Stamped
from tests.sim.violation import demand

SLACK_MS = 3
"""Each of a few clocks is rounded to a millisecond."""
RESTART_SLACK_MS = WALL_TOLERANCE_MS + 2 * SKEW_MS
"""A start of all members bridges time by wall clocks, and the wall offset may be in correction."""


class TimeRules:
    """Looks at each committed entry once, in order."""

    def __init__(self) -> None:
        self._index = LogIndex(0)
        self._now_ms = 0
        self._started_at_us = -1
        self._trusted_wrong_clock = False
        self._lead_ms: float | None = None
        """The least lead of cluster time over true time so far."""

    def applied(self, index: LogIndex, stamped: Stamped | None) -> None:
        """Check the timestamp of an entry when the first member applies it."""
        if index <= self._index:
            return
        self._index = index
        if stamped is None:
            return
        demand(
            stamped.now_ms >= self._now_ms,
            f"cluster time goes back from {self._now_ms} to {stamped.now_ms} at {index}",
        )
        self._now_ms = stamped.now_ms
        true_ms = stamped.true_us / 1000 * (1 + DRIFT)
        lead_ms = stamped.now_ms - true_ms
        by_wall_clocks = stamped.started_by in (AGREED, LEAST)
        is_first = by_wall_clocks and stamped.started_us != self._started_at_us
        if is_first and (stamped.trusts_wrong_clock or self._trusted_wrong_clock):
            # A wrong wall clock alone is, or was, a quorum, as in a group of one voter. Nothing can
            # be demanded of a time that only this clock knows.
            self._lead_ms = None
        if is_first:
            self._trusted_wrong_clock = stamped.trusts_wrong_clock
        if self._lead_ms is not None:
            slack_ms = RESTART_SLACK_MS if is_first else SLACK_MS
            demand(
                lead_ms <= self._lead_ms + slack_ms,
                f"cluster time runs ahead by {lead_ms - self._lead_ms:.0f} ms at {index}, "
                f"so deadlines fire early",
            )
            if is_first:
                self._lead_ms = max(self._lead_ms, lead_ms)
        self._started_at_us = stamped.started_us
        self._lead_ms = lead_ms if self._lead_ms is None else min(self._lead_ms, lead_ms)
