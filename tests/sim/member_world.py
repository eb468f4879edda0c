"""The simulated world, as a member uses it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from taskraft_replication.core.types import MemberId, Message
from tests.sim.invariants import Invariants
from tests.sim.network import Content
from tests.sim.pieces import Piece
from tests.sim.planned_crashes import Moment
from tests.sim.run_profile import RunProfile
from tests.sim.schedule import Schedule
from tests.sim.workload import Workload

if TYPE_CHECKING:
    from tests.sim.member import Member
    from tests.sim.state_damage import StateDamage


class World(Protocol):
    """The simulated world, as a member uses it."""

    schedule: Schedule
    invariants: Invariants
    workload: Workload
    profile: RunProfile

    def send(self, to: MemberId, frame: Content, sender: Member) -> None: ...
    def send_snapshot(
        self, message: Message, pieces: list[Piece], done: Callable[[bool], None]
    ) -> None: ...
    def count(self, name: str) -> None: ...
    def wrong_clocks(self) -> list[MemberId]: ...
    def peers_of(self, member: Member) -> list[Member]: ...
    def can_damage_sender(self, member: Member, sender: Member) -> bool: ...
    def can_lose(self, member: Member) -> bool: ...
    def state_damage_found(self, member: Member) -> None: ...
    def damage_again(self, member: Member, damage: StateDamage, rng: Random) -> None: ...
    def on_rare_event(self, member: Member, moment: Moment) -> None: ...
    def ended(self, member: Member, why: str) -> None: ...
    def crashed(self, member: Member) -> None: ...
