"""Provide members whose clocks exchange beacons, in virtual time."""

from __future__ import annotations

from taskraft_service.clock.group_clock import GroupClock

HOUR_MS = 3_600_000
WALL_MS = 1_700_000_000_000
"""Time of a right wall clock at the beginning."""


class TrueTime:
    """The virtual time of all members."""

    def __init__(self) -> None:
        self.ms = 0


class Member:
    """One member: its clocks, and its view of the group and of the applied state."""

    def __init__(self, member_id, time, voters=(1, 2, 3), *, ahead_ms=0) -> None:
        self.time = time
        self.member_id = member_id
        self.voters = voters
        self.ahead_ms = ahead_ms
        """Lead of the member's wall clock over true time."""
        self.lead_term = 0
        self.wall_offset_ms = 0
        self.applied_ms = 0
        self.clock_epoch = 0
        self.clock_term = 0
        self.clock = GroupClock(member_id, self, self.wall_ms, self.monotonic_ms)

    def wall_ms(self):
        return WALL_MS + self.time.ms + self.ahead_ms

    def monotonic_ms(self):
        return 1_000 * self.member_id + self.time.ms

    def has_quorum(self, members):
        return 2 * len({*members} & {*self.voters}) > len(self.voters)

    def restart(self):
        self.lead_term = 0
        self.clock = GroupClock(self.member_id, self, self.wall_ms, self.monotonic_ms)

    def hears(self, other):
        self.clock.received(other.member_id, other.clock.make())

    def lead(self, term, *others, waits_for_all=True):
        """Become leader in a term and exchange heartbeats; return whether the clock is ready."""
        self.lead_term = term
        self.exchange(*others)
        return self.clock.try_start(waits_for_all=waits_for_all)

    def serve(self, *others):
        """Apply the Startup of this leader here and at the others."""
        for member in (self, *others):
            member.clock_epoch = self.clock.cluster.epoch
            member.clock_term = self.lead_term

    def exchange(self, *others):
        for other in others:
            other.hears(self)
            self.hears(other)


def group(count=3, **ahead_ms):
    """Create members; ``m2=5`` sets the wall clock of member 2 ahead by 5 ms."""
    time = TrueTime()
    voters = tuple(range(1, count + 1))
    return time, [
        Member(number, time, voters, ahead_ms=ahead_ms.get(f"m{number}", 0)) for number in voters
    ]
