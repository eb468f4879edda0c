"""Determine the cluster time, and the error of the wall clocks, from the beacons of the members.

The members exchange their clocks in beacons, which are sent with the heartbeats of the leader and
with the replies to them. A follower continues the leader's cluster time. A new leader that does not
know the cluster time chooses it together with a majority. The leader computes the wall offset on
which the wall clocks of a majority agree, and sends it to the followers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from taskraft_replication.core.types import MemberId, Term
from taskraft_service.clock.agreement import WALL_TOLERANCE_MS, agreed_value, least_plausible
from taskraft_service.clock.beacon import ClockBeacon, decode_beacon
from taskraft_service.clock.cluster_clock import ClusterClock
from taskraft_service.clock.member_clocks import BEACON_AGE_MS_MAX, MemberClocks

HEARD: Final = "the previous leader"
ESTIMATED: Final = "another member"
AGREED: Final = "the wall clocks of a majority"
LEAST: Final = "the least of the wall clocks, which disagree"

RECOVERED_MS: Final = WALL_TOLERANCE_MS // 2
"""A wall clock that has deviated counts as right again within this difference."""


class Group(Protocol):
    """The Raft group and its applied state, as the clocks use them."""

    @property
    def lead_term(self) -> int:
        """Return the term in which this member leads; 0 if it does not lead."""

    @property
    def voters(self) -> Collection[MemberId]:
        """Return the members with a vote, of both halves of a joint configuration."""

    @property
    def wall_offset_ms(self) -> int:
        """Return the wall offset in the applied state."""

    @property
    def applied_ms(self) -> int:
        """Return the greatest timestamp in the applied state."""

    def has_quorum(self, members: Collection[MemberId]) -> bool:
        """Return whether members include a majority of the voters, of both halves if joint."""


class GroupClock:
    """The clocks of all members, as this member knows them; satisfies ``Beacons``.

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
        self._heard_term = Term(0)
        """The highest term of a leader from which a beacon has arrived."""
        self._agreed_ms: int | None = None
        self._agreed_at_ms = 0
        self.deviates = False
        """Whether the wall clock of this node differs from those of a majority."""
        self.started_by = ""
        """Source of the cluster time when this node last became leader, for operators."""
        self.on_beacon: Callable[[], None] = lambda: None
        """Called after each received beacon."""

    def now_ms(self) -> int:
        """Return the cluster time; never lower than before."""
        return self.cluster.now_ms()

    # ------------------------------------------------------------------------- beacons

    def make(self) -> bytes:
        """Return a beacon with the current clocks; see ``Beacons``."""
        cluster = self.cluster
        lead_term = self._group.lead_term if cluster.is_known else 0
        return ClockBeacon(
            lead_term,
            cluster.now_ms() if lead_term else cluster.estimate_ms(),
            self._wall_ms(),
            self._agreed_ms if lead_term else None,
        ).encode()

    def received(self, sender: MemberId, beacon: bytes) -> None:
        """Process the beacon of another member; see ``Beacons``."""
        decoded = decode_beacon(beacon)
        self.members.heard(sender, decoded, self._monotonic_ms())
        if not self._group.lead_term:
            self._follow(decoded)
        self.on_beacon()

    def _follow(self, beacon: ClockBeacon) -> None:
        """Continue the cluster time of a leader, unless a later leader has sent a beacon."""
        if beacon.cluster_ms is None or beacon.lead_term < max(self._heard_term, 1):
            return
        self._heard_term = Term(beacon.lead_term)
        self.cluster.heard(beacon.cluster_ms)
        self._agreed_ms, self._agreed_at_ms = beacon.agreed_offset_ms, self._monotonic_ms()

    # ------------------------------------------------------------------------- a new leader

    def unheard_voters(self) -> set[MemberId]:
        """Return the other voters that sent no beacon since this process started."""
        return {*self._group.voters} - {*self.members.members, self._member_id}

    def try_start(self, *, waits_for_all: bool) -> bool:
        """Let a new leader define the cluster time; return whether it could.

        If this process knows the cluster time, the leader continues it. Otherwise the leader
        chooses the cluster time here.

        The whole log must be applied, and a majority of the voters, including this one, must have
        sent a beacon. The highest estimate is used, because each estimate is a lower bound. If no
        voter knows the cluster time, all members were down, and only wall clocks can bridge that
        time. Then each estimate is a wall clock minus the wall offset in the log.

        Args:
            waits_for_all: while the estimates disagree, wait for a beacon of every voter.
        """
        cluster, group, at_ms = self.cluster, self._group, self._monotonic_ms()
        if cluster.is_known:
            self.started_by = HEARD
            cluster.lead()
            return True
        voters = group.voters
        if not group.has_quorum([*self.members.members, self._member_id]):
            return False
        walls = self.members.wall_clocks(at_ms, voters)
        walls[self._member_id] = self._wall_ms()
        guesses = {member: wall_ms - group.wall_offset_ms for member, wall_ms in walls.items()}
        estimates = self.members.cluster_times(at_ms, voters)
        chosen = max(estimates) if estimates else agreed_value(guesses, group.has_quorum)
        self.started_by = ESTIMATED if estimates else AGREED
        if chosen is None:
            if waits_for_all and self.unheard_voters():
                return False
            self.started_by = LEAST
            chosen = least_plausible(guesses.values(), group.applied_ms)
        cluster.applied(group.applied_ms)
        cluster.lead(chosen)
        return True

    # ------------------------------------------------------------------------- wall clocks

    def compare(self) -> None:
        """Compare the wall clocks again; call it every second."""
        if self._group.lead_term and self.cluster.is_known:
            self._agreed_ms = agreed_value(self.wall_offsets(), self._group.has_quorum)
            self._agreed_at_ms = self._monotonic_ms()
        deviation_ms = abs(self.wall_deviation_ms or 0)
        self.deviates = deviation_ms > (RECOVERED_MS if self.deviates else WALL_TOLERANCE_MS)

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
        """Wall clock of this node minus cluster time; None: the cluster time is unknown."""
        cluster_ms = self.cluster.estimate_ms()
        return None if cluster_ms is None else self._wall_ms() - cluster_ms

    @property
    def agreed_offset_ms(self) -> int | None:
        """Wall clock minus cluster time, as a majority of the voters agrees; None: unknown."""
        is_old = self._monotonic_ms() - self._agreed_at_ms > BEACON_AGE_MS_MAX
        return None if is_old else self._agreed_ms

    @property
    def wall_deviation_ms(self) -> int | None:
        """Lead of this node's wall clock over that of a majority, in ms; None: unknown."""
        own_ms, agreed_ms = self.own_offset_ms, self.agreed_offset_ms
        return None if own_ms is None or agreed_ms is None else own_ms - agreed_ms

    def right_members(self) -> set[MemberId]:
        """Return the voters, possibly with this member, whose wall clocks agree with a majority."""
        agreed_ms = self.agreed_offset_ms
        if agreed_ms is None:
            return set()
        return {
            member
            for member, offset_ms in self.wall_offsets().items()
            if abs(offset_ms - agreed_ms) <= RECOVERED_MS
        }
