"""Run the comparison of states of a member in virtual time, with the digests of the simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskraft_replication.core.types import LogIndex
from taskraft_service.machine.state_comparison import StateComparison
from taskraft_service.queue.persistence.record_digest import DIGESTS, PARTS
from tests.sim.state_damage import Finder
from tests.sim.violation import demand

if TYPE_CHECKING:
    from tests.sim.member import Member

PERIOD_MS = 1000
HASH_US = (100, 50_000)
"""Range of the duration of the computation of a digest."""


class SimComparison:
    """The comparison of one process with the other members."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._index = LogIndex(0)
        """The entry after which this member computes its digest; 0: none."""
        self._is_wrong = False
        """Whether a fault had changed the state whose digest this member computed last."""
        self.real = StateComparison(
            member.id,
            member.clocks,
            lambda: member.machine.applied_index,
            self._begin,
            PERIOD_MS,
            member.clocks.monotonic_ms,
            self._failed,
        )

    def _begin(self, index: LogIndex) -> None:
        self._index = index
        machine = self._member.machine
        if machine.applied_index == index:
            self.applied(index, machine.digest)

    def applied(self, index: LogIndex, digest: bytes) -> None:
        """Compute the digest if the leader has named this entry."""
        if index != self._index:
            return
        self._index = LogIndex(0)
        member = self._member
        self._is_wrong = member.damage is not None and member.damage.finder is Finder.REPORT
        if self._is_wrong:
            digest = bytes(each ^ 1 for each in digest)
        parts = [int.from_bytes(digest[:4], "big")] * PARTS
        delay_us = member.draw_us(HASH_US)
        member.later(delay_us, "digest", lambda: self._computed(index, parts))

    def _computed(self, index: LogIndex, parts: list[int]) -> None:
        if not self._member.meets(Finder.COMPARISON):
            self.real.computed(index, max(DIGESTS), parts)

    def _failed(self, error: Exception) -> None:
        """Stop the member, because a majority has another digest.

        A snapshot may have replaced the state since then. The member then goes on.
        """
        demand(
            self._is_wrong,
            f"{self._member.id} is told that its state differs, and no fault changed it: {error}",
        )
        self._member.world.count("states compared: a member differs")
        self._member.meets(Finder.REPORT)
