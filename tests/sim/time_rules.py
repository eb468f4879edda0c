"""Judge cluster time against true time: no deadline fires early, and time never goes back."""

from __future__ import annotations

from taskraft_replication.core.types import LogIndex
from taskraft_service.clock.agreement import WALL_TOLERANCE_MS
from tests.sim.clocks import DRIFT, SKEW_MS
from tests.sim.machine import Stamped
from tests.sim.violation import demand

SLACK_MS = 3
"""Tolerance for the rounding of several clocks to whole milliseconds."""
RESTART_SLACK_MS = WALL_TOLERANCE_MS + 2 * SKEW_MS
"""Tolerance after a start of all members. Wall clocks bridge the time, and the wall offset may
still be under correction."""


class TimeRules:
    """Looks at each committed entry once, in order."""

    def __init__(self) -> None:
        self._index = LogIndex(0)
        self._now_ms = 0
        self._epoch = 0
        self._trusted_wrong_clock = False
        self._may_be_late = False
        self._lead_ms: float | None = None
        """The smallest lead of cluster time over true time so far."""

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
        is_first = stamped.epoch != self._epoch
        if is_first and (
            stamped.trusts_wrong_clock or self._trusted_wrong_clock or self._may_be_late
        ):
            # One wrong wall clock alone is, or was, a quorum, as in a group of one voter. Only this
            # clock knows the time, so no rule applies. After an epoch with a late time, the wall
            # clocks of a majority may be ahead of this time by any amount; see decision 12.
            self._lead_ms = None
        if is_first:
            self._trusted_wrong_clock = stamped.trusts_wrong_clock
            self._may_be_late = False
        self._may_be_late |= stamped.may_be_late
        if self._lead_ms is not None:
            slack_ms = RESTART_SLACK_MS if is_first else SLACK_MS
            demand(
                lead_ms <= self._lead_ms + slack_ms,
                f"cluster time runs ahead by {lead_ms - self._lead_ms:.0f} ms at {index}, "
                f"so deadlines fire early",
            )
            if is_first:
                self._lead_ms = max(self._lead_ms, lead_ms)
        self._epoch = stamped.epoch
        self._lead_ms = lead_ms if self._lead_ms is None else min(self._lead_ms, lead_ms)
