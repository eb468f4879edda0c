"""Measure the delay of this member's disk in ticks, and end its leadership if the disk stalls.

A leader whose disk stalls still sends heartbeats, because heartbeats do not wait for the disk. No
election would replace it. Entries are committed by the other members, but the leader applies an
entry only when its own log has it, so no caller gets an answer.

A change of leader helps only if other disks are faster. The leader detects this by entries that a
majority of the other members has synced before the leader's own sync. If all disks are slow, there
are no such entries, and the leader stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.status import successor_of
from taskraft_replication.core.types import LogIndex, RaftRole
from taskraft_replication.effects import StorageWork

STALL_TICKS: Final = 10
HANG_TICKS: Final = 600

SLOWER_FACTOR: Final = 2
"""Minimum ratio of a disk's delay to the delay of the other disks that ends a leadership. Equal
disks have a ratio of 1, see ``DiskWatch.is_slowest``."""

LEADERSHIP_PER_ELECTION: Final = 10
"""Minimum duration of a leadership before the disk may end it, as a multiple of the duration of its
election. If all disks are slow, elections are slow too. This minimum limits the share of elections
to about a tenth of the time."""


@dataclass(slots=True, frozen=True)
class DiskPolicy:
    """Limits on the duration of one item of storage work, in ticks."""

    stall_ticks: int = STALL_TICKS
    """Time after which a disk counts as stalled. A leader then gives up its leadership if the other
    disks are faster, and other members with a stalled disk do not campaign."""
    hang_ticks: int = HANG_TICKS
    """Time after which the member must stop."""

    def __post_init__(self) -> None:
        """Check that each limit is in its range."""
        assert 1 <= self.stall_ticks < self.hang_ticks


@dataclass(slots=True)
class _Appended:
    """Entries that the leader appended during one tick and that are not durable on its disk."""

    last: LogIndex
    at: int
    committed_at: int | None = None
    """Tick at which the entries were committed, through the other members; None before."""


class DiskWatch:
    """Measures the time for which the oldest item of storage work has been outstanding.

    Args:
        policy: limits on the time.
        work: counts of the storage work of this member.
    """

    def __init__(self, policy: DiskPolicy, work: StorageWork) -> None:
        self._policy = policy
        self._work = work
        self._now = 0
        self._finished = 0
        self._appended: deque[_Appended] = deque()
        self.waited_ticks = 0
        """Ticks for which the oldest item has been outstanding, rounded up; 0: there is no item."""
        self.applying_waited_ticks = 0
        """Ticks for which the state machine could not apply entries because of its disk."""

    @property
    def is_stalled(self) -> bool:
        """Return whether the oldest item has reached ``stall_ticks``."""
        return self.waited_ticks >= self._policy.stall_ticks

    @property
    def is_hung(self) -> bool:
        """Return whether the disk has not answered for so long that this member must stop."""
        longest = max(self.waited_ticks, self.applying_waited_ticks)
        return longest >= self._policy.hang_ticks

    @property
    def is_slowest(self) -> bool:
        """Return whether this disk is stalled, and a majority of the other disks is much faster.

        The other disks are much faster if they synced the oldest entry that is not durable here,
        and this disk has needed ``SLOWER_FACTOR`` times their time since then. Equally slow disks
        can differ by at most one sync, because an entry may have to wait for the previous sync on
        one of the disks.
        """
        if not self.is_stalled or not self._appended:
            return False
        oldest = self._appended[0]
        if oldest.committed_at is None:
            return False
        behind = self._now - oldest.committed_at
        others = oldest.committed_at - oldest.at
        return behind >= max(self._policy.stall_ticks, SLOWER_FACTOR * others)

    def tick(self, *, applying_waits: bool) -> None:
        """Measure the oldest item; called once a tick.

        ``applying_waits``: whether the state machine waits for its disk.
        """
        self._now += 1
        work = self._work
        is_same = work.finished == self._finished and work.finished < work.requested
        self._finished = work.finished
        self.waited_ticks = self.waited_ticks + 1 if is_same else 0
        self.applying_waited_ticks = self.applying_waited_ticks + 1 if applying_waits else 0

    def note_log(self, last: LogIndex, commit: LogIndex, durable: LogIndex) -> None:
        """Record the last, committed and durable index of the leader's log, once per tick."""
        appended = self._appended
        while appended and appended[0].last <= durable:
            appended.popleft()
        if last > max(durable, appended[-1].last if appended else durable):
            appended.append(_Appended(last, self._now))
        for each in appended:
            if each.last > commit:
                break
            if each.committed_at is None:
                each.committed_at = self._now

    def forget_log(self) -> None:
        """Forget the leader's log, because the leadership has ended."""
        self._appended.clear()


class DiskHandover:
    """Ends the leadership of a member whose disk is the slowest.

    The leader first transfers its leadership. If no member takes over within an election timeout,
    the leader steps down, and the other members elect a leader after their election timeouts.

    Args:
        core: the Raft core.
        watch: measures the disk; its ``tick`` is called before the ``tick`` of this object.
        durable: returns the index of the last entry that is durable on this member.
        election_ticks: minimum election timeout; the core gives up a transfer after this time.
    """

    def __init__(
        self,
        core: RaftCore,
        watch: DiskWatch,
        durable: Callable[[], LogIndex],
        election_ticks: int,
    ) -> None:
        self.begun = 0
        """Number of leaderships that the disk has ended, or tried to end."""
        self._core = core
        self._watch = watch
        self._durable = durable
        self._election_ticks = election_ticks
        self._now = 0
        self._campaign_at = 0
        self._established_at: int | None = None
        self._transfer_at: int | None = None

    def role_changed(self, role: RaftRole) -> None:
        """Record when an election begins; forget the previous leadership."""
        if role is RaftRole.CANDIDATE:
            self._campaign_at = self._now
        self._watch.forget_log()
        self._established_at = self._transfer_at = None

    def tick(self) -> None:
        """Advance the clock by one tick."""
        self._now += 1
        core = self._core
        if core.role is not RaftRole.LEADER:
            return
        self._watch.note_log(core.last_index, core.commit_index, self._durable())
        if self._established_at is None:
            if core.has_committed_in_term:
                self._established_at = self._now
        elif not self._watch.is_slowest:
            self._transfer_at = None
        elif self._is_due(self._established_at):
            self._end_leadership()

    def _is_due(self, established_at: int) -> bool:
        election = max(1, established_at - self._campaign_at)
        return self._now - established_at >= LEADERSHIP_PER_ELECTION * election

    def _end_leadership(self) -> None:
        """Transfer the leadership; step down if the transfer takes too long or is not possible."""
        core = self._core
        if self._transfer_at is None:
            self.begun += 1
            self._transfer_at = self._now
            successor = successor_of(core.status())
            if successor is None:
                core.step_down()
            else:
                core.transfer_leader(successor)
        elif self._now - self._transfer_at > self._election_ticks:
            core.step_down()
