"""Keep the clock readings that the other members have sent in beacons."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from taskraft_replication.core.types import MemberId
from taskraft_service.clock.beacon import ClockBeacon
from taskraft_service.clock.cluster_clock import DRIFT_PER_MILLE, TimeEstimate
from taskraft_service.queue.values import value

BEACON_AGE_MS_MAX: Final = 10_000
"""Maximum age of the last beacon of a member that counts as present."""


@value
class _MemberClock:
    """The clocks of a member relative to this node's monotonic clock, from its last beacon.

    Both clocks continue at the rate of the monotonic clock. ``cluster_ahead_ms`` is None if the
    member does not know the cluster time. ``heard_in`` is the term in which this node led when it
    received the beacon; 0: it did not lead.
    """

    heard_at_ms: int
    heard_in: int
    wall_ahead_ms: int
    cluster_ahead_ms: int | None
    epoch: int
    term: int


class MemberClocks:
    """The last known clock readings of the other members.

    The methods take instants of this node's monotonic clock, in ms.
    """

    def __init__(self) -> None:
        self._clocks: dict[MemberId, _MemberClock] = {}

    def heard(self, member: MemberId, beacon: ClockBeacon, at_ms: int, lead_term: int) -> None:
        """Record a beacon; ``lead_term`` is the term in which this node leads, or 0."""
        cluster_ms = beacon.cluster_ms
        self._clocks[member] = _MemberClock(
            at_ms,
            lead_term,
            beacon.wall_ms - at_ms,
            None if cluster_ms is None else cluster_ms - at_ms,
            beacon.clock_epoch,
            beacon.clock_term,
        )

    def estimates(self, at_ms: int, among: Collection[MemberId]) -> list[TimeEstimate]:
        """Return the estimate of each member that knows the cluster time, as a lower bound.

        The maximum drift of this node's clock since the beacon is subtracted.
        """
        found = []
        for member, clock in self._clocks.items():
            if member in among and clock.cluster_ahead_ms is not None:
                drift_ms = (at_ms - clock.heard_at_ms) * DRIFT_PER_MILLE // 1_000
                now_ms = at_ms + clock.cluster_ahead_ms - drift_ms
                found.append(TimeEstimate(now_ms, clock.epoch, clock.term))
        return found

    def wall_clocks(
        self, at_ms: int, among: Collection[MemberId], lead_term: int
    ) -> dict[MemberId, int]:
        """Return the wall clock of each member that sent a beacon in the term of this leader."""
        return {
            member: at_ms + clock.wall_ahead_ms
            for member, clock in self._clocks.items()
            if member in among and clock.heard_in == lead_term
        }

    def wall_offsets(self, at_ms: int, among: Collection[MemberId]) -> dict[MemberId, int]:
        """Return wall clock minus cluster time of each member that is present and knows both.

        The member reads both clocks at the same instant, so network delays have no effect.
        """
        return {
            member: clock.wall_ahead_ms - clock.cluster_ahead_ms
            for member, clock in self._clocks.items()
            if member in among
            and clock.cluster_ahead_ms is not None
            and at_ms - clock.heard_at_ms <= BEACON_AGE_MS_MAX
        }
