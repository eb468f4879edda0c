"""Damage to the stored state of a member: what finds the damage, and what is damaged next."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from taskraft_replication.core.types import LogIndex

if TYPE_CHECKING:
    from tests.sim.machine import Durable
    from tests.sim.member import Member
    from tests.sim.member_world import World


class Finder(enum.Enum):
    """The use of a state that finds its damage."""

    START = "a start"
    CALL = "a call"
    REPLAY = "the application of an entry"
    COMPARISON = "the computation of a digest"
    SCRUBBER = "the scrubber"
    SNAPSHOT = "the creation of a snapshot"
    SENDING = "the sending of a snapshot"
    REPORT = "the digest of a majority"
    """The checksums of the state are right, and its content differs."""


class NextDamage(enum.Enum):
    """Damage during the repair of a state."""

    NONE = "nothing"
    SENDER = "the sender"
    RECEIVED = "a received block"
    REPAIRED = "the repaired state"


BATCHES_MAX = 3
"""Maximum number of batches of entries until the application of a batch finds the damage."""


@dataclass(slots=True)
class StateDamage:
    """Damage to a state that one kind of use finds."""

    finder: Finder
    uses: int = 1
    """Number of uses of this kind until the damage is found."""
    is_found: bool = False

    def is_found_by(self, finder: Finder) -> bool:
        """Return whether this use of the state finds the damage, or a use before has found it.

        A member that sends its state reads all blocks. It finds a difference of the content too:
        the simulation has no test for a copy of a state that differs.
        """
        if finder is self.finder:
            self.uses -= 1
        if finder is Finder.SENDING or not self.uses:
            self.is_found = True
        return self.is_found


def draw_damage(rng: Random) -> StateDamage:
    """Return damage with a random finder."""
    finder = rng.choice([*Finder])
    return StateDamage(finder, rng.randint(1, BATCHES_MAX) if finder is Finder.REPLAY else 1)


class DamageableState:
    """The damage of a member's stored state, through all starts of the member."""

    world: World
    is_in_event: bool

    def __init__(self) -> None:
        self.damage: StateDamage | None = None
        """Damage to the stored state that is not repaired."""
        self.next_damage = NextDamage.NONE
        """Further damage that the next repair meets."""
        self.has_lost_state = False
        """Whether a fault has replaced the state by an older one or by nothing, since the start."""
        self.known_commit = LogIndex(0)
        """Commit index that a start finds, or would find, on the disk."""
        self._known_without_state = LogIndex(0)
        """The part of ``known_commit`` that the log still proves after a loss of the state."""

    def meets(self: Member, finder: Finder) -> bool:
        """Use the state; return whether it is found damaged. Then the process ends."""
        damage = self.damage
        if damage is None:
            return False
        was_found = damage.is_found
        if damage.is_found_by(finder) and not was_found:
            self.world.count(f"damage found by {finder.value}")
            if not self.is_in_event:
                self.world.state_damage_found(self)
        return damage.is_found

    def lose_state(self: Member, left: Durable) -> None:
        """Let the next start find an older state or none; log, vote and memberships are whole."""
        self.machine.lose(left)
        self.damage = None
        self.has_lost_state = True
        self.known_commit = self._known_without_state

    def note_commit_found(self: Member) -> None:
        """Record the commit index of a start, and how much of the index needs no state."""
        self.known_commit = found = self.commit_found
        if found == self.machine.applied_index:  # Perhaps only the state proves this index.
            start = LogIndex(self.view.first_index() - 1)
            found = min(found, max(start, self.durable_hard_state().commit))
        self._known_without_state = max(self._known_without_state, found)

    def change_stored(self, index: LogIndex) -> None:
        """Record that a membership change is stored: a start then takes its entry for committed."""
        self.known_commit = max(self.known_commit, index)
        self._known_without_state = max(self._known_without_state, index)

    def takes_next_damage(self, kind: NextDamage) -> bool:
        """Return whether a repair meets this damage now; it does so once."""
        if self.next_damage is not kind:
            return False
        self.next_damage = NextDamage.NONE
        self.world.count(f"fault: second damage, to {kind.value}")
        return True


class StateUnreadable(Exception):
    """A use of the state in the middle of an event has found damage; the process ends."""
