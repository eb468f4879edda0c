"""Run the real clocks of a member in virtual time, with a wall clock that may be wrong."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import TYPE_CHECKING

from taskraft_replication.core.quorum import VoteResult, joint_vote
from taskraft_replication.core.types import MemberId, RaftRole, Term
from taskraft_service.clock.group_clock import AGREED, LEAST, GroupClock
from taskraft_service.clock.wall_correction import WallCorrection
from taskraft_service.leader.clock_keeper import ALL_VOTERS_MS_MAX
from taskraft_service.queue.operations.registry import Command
from tests.sim.machine import Stamped

if TYPE_CHECKING:
    from tests.sim.member import Member

WALL_MS = 1_700_000_000_000
"""Right wall clocks show about this at the beginning."""
SKEW_MS = 300
"""Maximum difference of a right wall clock from true time."""
DRIFT = 0.0004
"""Maximum error of a monotonic clock's rate; two clocks drift by less than 1 ms per second."""


class SimClocks:
    """The clocks of one member through all its starts; satisfies ``clock.group_clock.Group``."""

    def __init__(self, member: Member, rng: Random) -> None:
        self._member = member
        self._rng = rng
        self._rate = 1 + rng.uniform(-DRIFT, DRIFT)
        self._boot_ms = 0
        self.skew_ms = rng.randint(-SKEW_MS, SKEW_MS)
        self.wrong_by_ms = 0
        """Error of the wall clock beyond its skew; 0 if the wall clock is right."""
        self.start()

    def start(self) -> None:
        """Reset the clocks, as the start of a process does; the wall clock keeps its error."""
        self._boot_ms = self._rng.randrange(1 << 30)
        self.clock = GroupClock(self._member.id, self, self.wall_ms, self.monotonic_ms)
        self.served_term = Term(0)
        """The term in which this member leads and has started the cluster time."""
        self._waiting_term = Term(0)
        self._waiting_since_ms = 0
        self._correction = WallCorrection(0)

    # Sources

    def true_ms(self) -> int:
        return self._member.world.schedule.now_us // 1000

    def monotonic_ms(self) -> int:
        return int(self.true_ms() * self._rate) + self._boot_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.true_ms() + self.skew_ms + self.wrong_by_ms

    # The group

    @property
    def lead_term(self) -> int:
        core = self._member.driver.core
        return core.term if core.role is RaftRole.LEADER else 0

    @property
    def voters(self) -> Collection[MemberId]:
        membership = self._member.driver.membership
        return {*membership.voters, *membership.voters_outgoing}

    @property
    def wall_offset_ms(self) -> int:
        return self._member.machine.queue.wall_offset_ms

    @property
    def applied_ms(self) -> int:
        return self._member.machine.queue.now_ms

    @property
    def clock_epoch(self) -> int:
        return self._member.machine.queue.clock_epoch

    @property
    def clock_term(self) -> int:
        return self._member.machine.queue.clock_term

    def has_quorum(self, members: Collection[MemberId]) -> bool:
        present = dict.fromkeys(members, True)
        return joint_vote(self._member.driver.membership, present) is VoteResult.WON

    # A leader

    def try_to_serve(self) -> bool:
        """Start the cluster time of a leader with an applied log; return whether it did now."""
        term = Term(self.lead_term)
        if not term or term == self.served_term or self._member.machine.applied_term != term:
            return False
        now_ms = self.monotonic_ms()
        if term != self._waiting_term:
            self._waiting_term, self._waiting_since_ms = term, now_ms
        waited_ms = now_ms - self._waiting_since_ms
        if not self.clock.try_start(waits_for_all=waited_ms < ALL_VOTERS_MS_MAX):
            return False
        self.served_term = term
        world = self._member.world
        if self.clock.started_by in (AGREED, LEAST) and self.has_quorum(world.wrong_clocks()):
            world.wrong_epochs.add(self.clock.cluster.epoch)
        if self.clock.started_by != AGREED:
            # A leader that continues the time of another leader is late by the delay of beacons.
            world.late_epochs.add(self.clock.cluster.epoch)
        at_once = self.clock.started_by == LEAST
        self._correction = WallCorrection(now_ms, at_once=at_once)
        return True

    def stamped(self, commands: Sequence[Command]) -> Stamped:
        """Return commands with the timestamp of this moment."""
        return Stamped(
            self.clock.now_ms(),
            commands,
            true_us=self._member.world.schedule.now_us,
            epoch=self.clock.cluster.epoch,
            may_be_late=self.clock.cluster.epoch in self._member.world.late_epochs,
            trusts_wrong_clock=self.clock.cluster.epoch in self._member.world.wrong_epochs,
        )

    def next_wall_offset(self) -> int | None:
        """Compare the wall clocks; return the wall offset to set as leader, or None."""
        self.clock.compare()
        if not self.lead_term or self.lead_term != self.served_term:
            return None
        return self._correction.next_offset(
            self.wall_offset_ms, self.clock.agreed_offset_ms, self.monotonic_ms()
        )
