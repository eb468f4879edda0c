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
"""Number of crashes in a row; each later crash follows soon after the restart."""

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
class Ambush:
    """A planned crash at the next event of one kind, on any member."""

    moment: Moment
    rounds: int
    rng: Random
    victim: Member | None = None
    """The member that was crashed by the previous round."""


class Ambushes:
    """All planned crashes of a run; each run uses only some kinds of events."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._moments = rng.sample([*Moment], MOMENTS_OF_A_RUN)
        self._waiting: list[Ambush] = []

    def lay(self, rng: Random) -> None:
        """Plan a crash at the next event of one of the given kinds."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(Ambush(rng.choice(self._moments), rng.choice(ROUNDS), rng))

    def clear(self) -> None:
        """Cancel all planned crashes."""
        self._waiting.clear()

    def met(self, member: Member, moment: Moment) -> None:
        """Report a rare event, and crash the member if a crash is planned for it."""
        for ambush in self._waiting:
            if ambush.moment is moment and ambush.victim in (None, member):
                self._waiting.remove(ambush)
                self._spring(ambush, member)
                return

    def _spring(self, ambush: Ambush, member: Member) -> None:
        rng, world = ambush.rng, self._world
        world.count(f"fault: crash behind {ambush.moment.value}")
        if ambush.rounds > 1:
            self._waiting.append(Ambush(Moment.START, ambush.rounds - 1, rng, member))
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
        world.schedule.after(delay_us, f"ambush of {member.id}", end)
