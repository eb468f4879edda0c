"""Keep the clocks that the other members have sent in beacons."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from taskraft_replication.core.types import MemberId
from taskraft_service.clock.beacon import ClockBeacon
from taskraft_service.queue.values import value

BEACON_AGE_MS_MAX: Final = 10_000
"""Maximum age of the last beacon of a member that counts as present."""


@value
class _MemberClock:
    """The clocks of a member relative to this node's monotonic clock, from its last beacon.

    Both continue at the rate of the monotonic clock. ``cluster_ahead_ms`` is None if the member
    does not know the cluster time.
    """

    heard_at_ms: int
    wall_ahead_ms: int
    cluster_ahead_ms: int | None


class MemberClocks:
    """The last known clocks of the other members.

    Instants of the own monotonic clock, in ms, are arguments of all methods.
    """

    def __init__(self) -> None:
        self._clocks: dict[MemberId, _MemberClock] = {}

    def heard(self, member: MemberId, beacon: ClockBeacon, at_ms: int) -> None:
        """Record a beacon."""
        cluster_ms = beacon.cluster_ms
        self._clocks[member] = _MemberClock(
            at_ms, beacon.wall_ms - at_ms, None if cluster_ms is None else cluster_ms - at_ms
        )

    @property
    def members(self) -> Collection[MemberId]:
        """Return the members that have sent a beacon since the process started."""
        return self._clocks.keys()

    def cluster_times(self, at_ms: int, among: Collection[MemberId]) -> list[int]:
        """Return the estimated cluster time of each member that knows it."""
        return [
            at_ms + clock.cluster_ahead_ms
            for member, clock in self._clocks.items()
            if member in among and clock.cluster_ahead_ms is not None
        ]

    def wall_clocks(self, at_ms: int, among: Collection[MemberId]) -> dict[MemberId, int]:
        """Return the wall clock of each member."""
        return {
            member: at_ms + clock.wall_ahead_ms
            for member, clock in self._clocks.items()
            if member in among
        }

    def wall_offsets(self, at_ms: int, among: Collection[MemberId]) -> dict[MemberId, int]:
        """Return wall clock minus cluster time of each member that is present and knows both.

        The member has read both at the same moment, so delays in the network do not matter.
        """
        return {
            member: clock.wall_ahead_ms - clock.cluster_ahead_ms
            for member, clock in self._clocks.items()
            if member in among
            and clock.cluster_ahead_ms is not None
            and at_ms - clock.heard_at_ms <= BEACON_AGE_MS_MAX
        }
