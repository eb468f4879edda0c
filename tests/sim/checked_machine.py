"""Report what a state machine of the simulation does to the invariants, and meet its damage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taskraft_replication.core.types import Entry, LogIndex
from taskraft_replication.errors import SnapshotUnavailable
from taskraft_replication.storage.membership_history import BOOTSTRAP_INDEX
from tests.sim.machine import Applied, Durable, FrozenState, QueueMachine, StagedState
from tests.sim.planned_crashes import Moment
from tests.sim.state_damage import Finder, NextDamage, StateUnreadable

if TYPE_CHECKING:
    from tests.sim.member import Member


class CheckedMachine(QueueMachine):
    """A state machine that reports each applied entry, and whose stored state may be damaged."""

    member: Member

    def apply(self, entries: Sequence[Entry]) -> Sequence[Applied]:
        # The start of a member applies the first entry to an empty state, which has no blocks.
        if entries[0].index > BOOTSTRAP_INDEX and self.member.meets(Finder.REPLAY):
            raise StateUnreadable
        results = super().apply(entries)
        self.member.clocks.clock.cluster.applied(self.queue.now_ms)
        check = self.member.world.invariants.applied
        for entry, applied in zip(entries, results, strict=True):
            check(self.member, entry, applied, self._contents.get(entry.data))
            self.member.comparison.applied(entry.index, applied.digest)
        return results

    def open_snapshot(self) -> FrozenState:
        if self.member.meets(Finder.SNAPSHOT):
            raise SnapshotUnavailable("the state is damaged")
        content = super().open_snapshot()
        return content if self.member.damage is None else DamagedState(content, self.member)

    def stage_snapshot(self, index: LogIndex, chunks: Iterable[bytes]) -> StagedState:
        content = b"".join(chunks)
        if self.member.takes_next_damage(NextDamage.RECEIVED):
            content = damaged(content)
        return super().stage_snapshot(index, [content])

    def switched(self, state: Durable) -> None:
        super().switched(state)
        self.member.damage = None
        self.member.has_lost_state = False

    def adopted(self, state: Durable) -> None:
        super().adopted(state)
        self.member.world.invariants.installed(self.member, self.applied_index, self.digest)
        self.member.world.on_rare_event(self.member, Moment.INSTALLATION)


class DamagedState(FrozenState):
    """A snapshot of a damaged state: the sender checks its blocks before they leave."""

    def __init__(self, whole: FrozenState, member: Member) -> None:
        self.index = whole.index
        self._content = damaged(whole.read(0, 1 << 40))
        self._member = member

    def read(self, offset: int, size: int) -> bytes:
        if self._member.meets(Finder.SENDING):
            raise SnapshotUnavailable("a block of the state is damaged")
        return super().read(offset, size)


def damaged(content: bytes) -> bytes:
    """Return a snapshot with one wrong bit in its last byte."""
    return content[:-1] + bytes((content[-1] ^ 1,))
