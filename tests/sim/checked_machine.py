"""Report what a state machine of the simulation applies to the invariants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taskraft_replication.core.types import Entry
from tests.sim.machine import Applied, Durable, FrozenState, QueueMachine
from tests.sim.planned_crashes import Moment

if TYPE_CHECKING:
    from tests.sim.member import Member


class CheckedMachine(QueueMachine):
    """A state machine that reports each applied entry to the invariants."""

    member: Member

    def apply(self, entries: Sequence[Entry]) -> Sequence[Applied]:
        results = super().apply(entries)
        self.member.clocks.clock.cluster.applied(self.queue.now_ms)
        check = self.member.world.invariants.applied
        for entry, applied in zip(entries, results, strict=True):
            check(self.member, entry, applied, self._contents.get(entry.data))
        return results

    def open_snapshot(self) -> FrozenState:
        if self.has_bad_blocks:
            self.member.world.bad_blocks_found(self.member)
        return super().open_snapshot()

    def adopted(self, state: Durable) -> None:
        super().adopted(state)
        self.member.world.invariants.installed(self.member, self.applied_index, self.digest)
        self.member.world.on_rare_event(self.member, Moment.INSTALLATION)
