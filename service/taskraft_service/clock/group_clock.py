"""Determine the cluster time, and the errors of the wall clocks, from the members' beacons.

The members exchange clock readings in beacons. The leader's heartbeats and the replies to
heartbeats carry the beacons. A follower continues the leader's cluster time. A new leader that does
not know the cluster time computes it from the clocks of a majority. The leader computes the wall
offset on which the wall clocks of a majority agree, and replicates the wall offset through the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from taskraft_replication.core.types import MemberId
from taskraft_service.clock.agreement import (
    WALL_TOLERANCE_MS,
    agreed_value,
    continued_estimate,
    least_plausible,
)
from taskraft_service.clock.beacon import ClockBeacon, decode_beacon
from taskraft_service.clock.cluster_clock import ClusterClock
from taskraft_service.clock.member_clocks import BEACON_AGE_MS_MAX, MemberClocks

HEARD: Final = "the previous leader"
ESTIMATED: Final = "another member"
AGREED: Final = "the wall clocks of a majority"
LEAST: Final = "the least of the wall clocks, which disagree"

CONFIRM_CHECKS: Final = 3
"""Number of consecutive comparisons that must find an error of the own wall clock before the clock
counts as wrong. A beacon that arrives late under load looks like an error until the next beacon."""
RECOVERED_MS: Final = WALL_TOLERANCE_MS // 2
"""A wall clock that deviated counts as correct again once its error is at most this value."""


class Group(Protocol):
    """The Raft group and its applied state, as the clocks use them."""

    @property
    def lead_term(self) -> int:
        """Return the term in which this member leads; 0 if it does not lead."""

    @property
    def voters(self) -> Collection[MemberId]:
        """Return the voters; in a joint configuration, the voters of both halves."""

    @property
    def wall_offset_ms(self) -> int:
        """Return the wall offset in the applied state."""

    @property
    def applied_ms(self) -> int:
        """Return the greatest timestamp in the applied state."""

    @property
    def clock_epoch(self) -> int:
        """Return the epoch of the cluster time in the applied state; 0: unknown."""

    @property
    def clock_term(self) -> int:
        """Return the term of the last leader whose Startup is applied; 0: unknown."""

    def has_quorum(self, members: Collection[MemberId]) -> bool:
        """Return whether members include a majority of the voters.

        During a joint change, the members must include a majority of the old and of the new voters.
        """


class GroupClock:
    """The clock readings of all members that this member has received; satisfies ``Beacons``.

    Args:
        member_id: this member.
        group: the Raft group.
        wall_ms: reads the wall clock.
        monotonic_ms: reads a clock that never goes back.
    """

    def __init__(
        self,
        member_id: MemberId,
        group: Group,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.cluster: Final = ClusterClock(monotonic_ms)
        self.members: Final = MemberClocks()
        self._member_id = member_id
        self._group = group
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._agreed_ms: int | None = None
        self._agreed_at_ms = 0
        self._deviations = 0
        """Number of consecutive comparisons that found an error of the own wall clock."""
        self.deviates = False
        """Whether the wall clock of this node differs from the wall clocks of a majority."""
        self.started_by = ""
        """Source of the cluster time when this node last became leader, for logs."""
        self.on_beacon: Callable[[], None] = lambda: None
        """Called after each received beacon."""

    def now_ms(self) -> int:
        """Return the cluster time; see ``ClusterClock.now_ms``."""
        return self.cluster.now_ms()

    # ------------------------------------------------------------------------- beacons

    def make(self) -> bytes:
        """Return a beacon with the current clocks; see ``Beacons``."""
        cluster, lead_term = self.cluster, self._group.lead_term
        if cluster.term != lead_term:
            lead_term = 0  # this leader has not started its cluster time yet
        return ClockBeacon(
            lead_term,
            cluster.now_ms() if lead_term else cluster.estimate_ms(),
            self._wall_ms(),
            self._agreed_ms if lead_term else None,
            cluster.epoch,
            cluster.term,
        ).encode()

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Process the beacon of another member; see ``Beacons``."""
        decoded = decode_beacon(beacon)
        lead_term = self._group.lead_term
        self.members.heard(sender, decoded, self._monotonic_ms(), lead_term)
        if not lead_term:
            self._follow(decoded)
        self.on_beacon()

    def _follow(self, beacon: ClockBeacon) -> None:
        """Adopt a leader's cluster time, unless the estimate here is of a later leader."""
        if beacon.cluster_ms is None or beacon.lead_term < max(self.cluster.term, 1):
            return
        self.cluster.heard(beacon.cluster_ms, beacon.clock_epoch, beacon.lead_term)
        self._agreed_ms, self._agreed_at_ms = beacon.agreed_offset_ms, self._monotonic_ms()

    # ------------------------------------------------------------------------- a new leader

    def unheard_voters(self) -> set[MemberId]:
        """Return the other voters that have sent this leader no beacon in its term."""
        voters = self._group.voters
        heard = self.members.wall_clocks(0, voters, self._group.lead_term)
        return {*voters} - {*heard, self._member_id}

    def try_start(self, *, waits_for_all: bool) -> bool:
        """Start the cluster clock of a new leader; return False if more beacons are needed.

        The whole log must be applied. If this process knows the cluster time of the last leader in
        the applied state, the new leader continues from its estimate.

        Otherwise a majority of the voters, including this one, must have sent a beacon in this
        term. ``continued_estimate`` chooses one of the estimates. If no voter has one that counts,
        all members were down, and only wall clocks measured the downtime. Each guess is then a wall
        clock minus the wall offset in the log, and the term becomes the epoch.

        Args:
            waits_for_all: while the guesses disagree, wait for a beacon of every voter.
        """
        cluster, group, at_ms = self.cluster, self._group, self._monotonic_ms()
        lead_term, epoch, term = group.lead_term, group.clock_epoch, group.clock_term
        if cluster.is_known and cluster.epoch == epoch and cluster.term >= term:
            self.started_by = HEARD
            cluster.lead(lead_term)
            return True
        voters = group.voters
        walls = self.members.wall_clocks(at_ms, voters, lead_term)
        walls[self._member_id] = self._wall_ms()
        if not group.has_quorum(walls):
            return False
        own = cluster.estimate()
        estimates = self.members.estimates(at_ms, voters) + ([own] if own else [])
        continued = continued_estimate(estimates, epoch, term)
        if continued is not None:
            self.started_by = ESTIMATED
            self._lead(continued.cluster_ms, continued.epoch)
            return True
        guesses = {member: wall_ms - group.wall_offset_ms for member, wall_ms in walls.items()}
        chosen = agreed_value(guesses, group.has_quorum)
        self.started_by = AGREED
        if chosen is None:
            if waits_for_all and self.unheard_voters():
                return False
            self.started_by = LEAST
            chosen = least_plausible(guesses.values(), group.applied_ms)
        self._lead(chosen, lead_term)
        return True

    def _lead(self, cluster_ms: int, epoch: int) -> None:
        """Start a cluster time that does not continue the estimate of this node."""
        self.cluster.forget()
        self.cluster.applied(self._group.applied_ms)
        self.cluster.lead(self._group.lead_term, cluster_ms, epoch)

    # ------------------------------------------------------------------------- wall clocks

    def compare(self) -> None:
        """Compare the wall clocks again; call it every second."""
        if self._group.lead_term and self.cluster.is_known:
            self._agreed_ms = agreed_value(self.wall_offsets(), self._group.has_quorum)
            self._agreed_at_ms = self._monotonic_ms()
        deviation_ms = abs(self.wall_deviation_ms or 0)
        is_off = deviation_ms > (RECOVERED_MS if self.deviates else WALL_TOLERANCE_MS)
        self._deviations = self._deviations + 1 if is_off else 0
        self.deviates = self._deviations >= CONFIRM_CHECKS

    def wall_offsets(self) -> dict[MemberId, int]:
        """Return wall clock minus cluster time of each voter that is present and knows both."""
        voters = self._group.voters
        offsets = self.members.wall_offsets(self._monotonic_ms(), voters)
        own_ms = self.own_offset_ms
        if own_ms is not None and self._member_id in voters:
            offsets[self._member_id] = own_ms
        return offsets

    @property
    def own_offset_ms(self) -> int | None:
        """Wall clock of this node minus cluster time, in ms; None: the cluster time is unknown."""
        cluster_ms = self.cluster.estimate_ms()
        return None if cluster_ms is None else self._wall_ms() - cluster_ms

    @property
    def agreed_offset_ms(self) -> int | None:
        """Wall offset on which a majority of the voters agrees, in ms; None: unknown."""
        is_old = self._monotonic_ms() - self._agreed_at_ms > BEACON_AGE_MS_MAX
        return None if is_old else self._agreed_ms

    @property
    def wall_deviation_ms(self) -> int | None:
        """Wall clock of this node minus the wall clock of a majority, in ms; None: unknown."""
        own_ms, agreed_ms = self.own_offset_ms, self.agreed_offset_ms
        return None if own_ms is None or agreed_ms is None else own_ms - agreed_ms

    def wall_deviations(self) -> dict[MemberId, int]:
        """Return each known voter's wall clock minus the wall clock of a majority, in ms."""
        agreed_ms = self.agreed_offset_ms
        if agreed_ms is None:
            return {}
        return {member: offset - agreed_ms for member, offset in self.wall_offsets().items()}

    @property
    def is_alone(self) -> bool:
        """Return whether this member is the only voter, so its clock is compared with no other."""
        return {*self._group.voters} == {self._member_id}

    def right_members(self) -> set[MemberId]:
        """Return the voters whose wall clocks agree with a majority."""
        deviations = self.wall_deviations().items()
        return {member for member, lead_ms in deviations if abs(lead_ms) <= RECOVERED_MS}
