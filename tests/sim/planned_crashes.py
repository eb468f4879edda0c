"""Crash processes right after rare events, which random crashes would seldom hit."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.member import Member
    from tests.sim.world import World

DELAYS_US = (1, 1000, 5000, 50_000, 400_000)
ROUNDS = (1, 1, 2, 3)
"""Possible numbers of crashes in a row; each later crash follows soon after the restart."""

WAITING_MAX = 4
MOMENTS_OF_A_RUN = 2


class Moment(enum.Enum):
    """A rare event after which a crash is most likely to reveal an error."""

    START = "a start"
    ELECTION = "an election"
    CHANGE = "a membership change"
    INSTALLATION = "an installation"
    TRIM = "a trim"


@dataclass(slots=True)
class PlannedCrash:
    """A planned crash at the next event of one kind, on any member."""

    moment: Moment
    rounds: int
    rng: Random
    victim: Member | None = None
    """The member that was crashed by the previous round."""


class PlannedCrashes:
    """All planned crashes of a run; each run uses only some kinds of events."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._moments = rng.sample([*Moment], MOMENTS_OF_A_RUN)
        self._waiting: list[PlannedCrash] = []

    def plan(self, rng: Random) -> None:
        """Plan a crash at the next event of one of the given kinds."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(PlannedCrash(rng.choice(self._moments), rng.choice(ROUNDS), rng))

    def clear(self) -> None:
        """Cancel all planned crashes."""
        self._waiting.clear()

    def on_rare_event(self, member: Member, moment: Moment) -> None:
        """Report a rare event, and crash the member if a crash is planned for it."""
        for planned in self._waiting:
            if planned.moment is moment and planned.victim in (None, member):
                self._waiting.remove(planned)
                self._crash(planned, member)
                return

    def _crash(self, planned: PlannedCrash, member: Member) -> None:
        rng, world = planned.rng, self._world
        world.count(f"fault: crash behind {planned.moment.value}")
        if planned.rounds > 1:
            self._waiting.append(PlannedCrash(Moment.START, planned.rounds - 1, rng, member))
        if rng.random() < 0.4:
            member.storage_thread.crash_soon()
            return
        victims = world.running if rng.random() < 0.2 else [member]
        power = rng.random() < 0.5

        def end() -> None:
            for each in victims:
                if each.is_running and not world.is_over:
                    world.faults.end_life(each, "kill or power loss", power=power, rng=rng)

        delay_us = rng.randrange(rng.choice(DELAYS_US))
        world.schedule.after(delay_us, f"planned crash of {member.id}", end)
