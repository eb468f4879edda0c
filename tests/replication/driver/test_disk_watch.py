"""A stalled disk is measured in ticks and compared with the disks of the other members."""

from __future__ import annotations

import pytest

from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.status import ProgressStatus, Status
from taskraft_replication.core.types import (
    NO_MEMBER,
    ConfState,
    HardState,
    LogIndex,
    MemberId,
    RaftRole,
    SoftState,
)
from taskraft_replication.driver.disk_watch import (
    LEADERSHIP_PER_ELECTION,
    DiskHandover,
    DiskPolicy,
    DiskWatch,
)
from taskraft_replication.effects import StorageWork

STALL = 4
HANG = 20
ELECTION = 7
SELF, SECOND, THIRD = MemberId(1), MemberId(2), MemberId(3)


class Disk:
    """A watch, the counters that it reads, and the leader's log."""

    def __init__(self) -> None:
        self.work = StorageWork()
        self.watch = DiskWatch(DiskPolicy(STALL, HANG), self.work)
        self.last = self.commit = self.durable = 10
        self.applying_waits = False

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.watch.tick(applying_waits=self.applying_waits)
            self.watch.note_log(LogIndex(self.last), LogIndex(self.commit), LogIndex(self.durable))

    def append(self) -> None:
        """Append an entry and start its write."""
        self.last += 1
        self.work.requested += 1

    def finish(self) -> None:
        """Finish the oldest write, which held one entry."""
        self.work.finished += 1
        self.durable += 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_an_idle_disk_is_never_stalled(disk):
    disk.tick(3 * HANG)
    assert disk.watch.waited_ticks == 0
    assert not disk.watch.is_stalled


def test_the_age_of_the_oldest_write_counts_not_the_number_of_writes(disk):
    disk.append()
    disk.tick(STALL - 1)
    assert not disk.watch.is_stalled
    disk.append()
    disk.finish()
    disk.tick()
    assert disk.watch.waited_ticks == 0, "the second write is the oldest now"
    disk.tick(STALL - 1)
    assert not disk.watch.is_stalled
    disk.tick()
    assert disk.watch.is_stalled
    assert not disk.watch.is_hung
    disk.tick(HANG - STALL)
    assert disk.watch.is_hung
    disk.finish()
    disk.tick()
    assert not disk.watch.is_stalled


def test_a_state_that_waits_for_the_disk_for_too_long_is_hung_too(disk):
    disk.applying_waits = True
    disk.tick(HANG - 1)
    assert not disk.watch.is_hung
    disk.tick()
    assert disk.watch.is_hung
    disk.applying_waits = False
    disk.tick()
    assert not disk.watch.is_hung


def test_a_stalled_disk_is_not_the_slowest_before_the_other_members_have_answered(disk):
    disk.append()
    disk.tick(STALL + 1)
    assert disk.watch.is_stalled
    assert not disk.watch.is_slowest


def test_the_disk_is_the_slowest_when_its_delay_reaches_the_limit(disk):
    disk.append()
    disk.tick()
    disk.commit = 11
    disk.tick(STALL)
    assert not disk.watch.is_slowest, "committed one tick after the entry was appended"
    disk.tick()
    assert disk.watch.is_slowest


def test_the_disk_is_not_the_slowest_while_the_other_disks_took_half_as_long(disk):
    disk.append()
    disk.tick(1 + STALL)
    disk.commit = 11
    disk.tick(2 * (1 + STALL))
    assert not disk.watch.is_slowest
    disk.tick()
    assert disk.watch.is_slowest


def test_an_entry_that_waited_for_the_write_before_it_does_not_make_the_disk_the_slowest(disk):
    """All disks take 6 ticks for a write; here two entries take two writes, elsewhere one."""
    disk.append()
    disk.tick()
    disk.append()
    disk.tick(6)
    disk.finish()
    disk.commit = 12
    disk.tick(6)
    assert disk.watch.is_stalled
    assert not disk.watch.is_slowest


def test_a_stall_without_entries_is_not_compared_with_the_other_disks(disk):
    disk.work.requested += 1
    disk.tick(HANG)
    assert disk.watch.is_hung
    assert not disk.watch.is_slowest


def test_the_appended_entries_are_forgotten_when_the_leadership_ends(disk):
    disk.append()
    disk.commit = 11
    disk.tick(STALL + 2)
    assert disk.watch.is_slowest
    disk.watch.forget_log()
    assert not disk.watch.is_slowest


class Core:
    """Replaces a leader of a group of three."""

    def __init__(self) -> None:
        self.role = RaftRole.LEADER
        self.has_committed_in_term = True
        self.last_index = self.commit_index = LogIndex(10)
        self.active = {SECOND: True, THIRD: True}
        self.match = {SECOND: LogIndex(11), THIRD: LogIndex(10)}
        self.asked: list[object] = []

    def status(self) -> Status:
        progress = {
            member: ProgressStatus(
                state=ProgressState.REPLICATE,
                match=self.match[member],
                next=LogIndex(12),
                is_learner=False,
                paused=False,
                pending_snapshot=LogIndex(0),
                recent_active=self.active[member],
                was_active=False,
                inflight_messages=0,
                inflight_bytes=0,
                inflight_full=False,
            )
            for member in (SECOND, THIRD)
        }
        configuration = ConfState((SELF, SECOND, THIRD))
        soft_state = SoftState(SELF, self.role)
        return Status(
            SELF,
            HardState(),
            soft_state,
            self.commit_index,
            self.last_index,
            configuration,
            NO_MEMBER,
            progress,
        )

    def transfer_leader(self, to: MemberId) -> None:
        self.asked.append(to)

    def step_down(self) -> None:
        self.asked.append("step down")


class Leader:
    """A leader with its disk; ``tick`` does the work of the driver at each tick."""

    def __init__(self) -> None:
        self.core = Core()
        self.work = StorageWork()
        self.watch = DiskWatch(DiskPolicy(STALL, HANG), self.work)
        self.durable = LogIndex(10)
        self.handover = DiskHandover(self.core, self.watch, lambda: self.durable, ELECTION)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.watch.tick(applying_waits=False)
            self.handover.tick()

    def hang(self) -> None:
        """Append an entry that the other members sync and this disk does not."""
        self.work.requested += 1
        self.core.last_index = self.core.commit_index = LogIndex(11)


@pytest.fixture
def leader() -> Leader:
    """Return a leader whose leadership has lasted long."""
    leader = Leader()
    leader.tick(10 * LEADERSHIP_PER_ELECTION)
    return leader


def test_a_healthy_leader_stays(leader):
    leader.tick(100)
    assert leader.core.asked == []
    assert leader.handover.begun == 0


def test_leadership_is_transferred_to_the_active_voter_with_the_longest_log(leader):
    leader.hang()
    leader.tick(STALL)
    assert leader.core.asked == []
    leader.tick()
    assert leader.core.asked == [SECOND]
    assert leader.handover.begun == 1


def test_a_leader_steps_down_when_the_transfer_fails_for_an_election_timeout(leader):
    leader.hang()
    leader.tick(STALL + 1)
    leader.tick(ELECTION)
    assert leader.core.asked == [SECOND]
    leader.tick()
    assert leader.core.asked == [SECOND, "step down"]
    assert leader.handover.begun == 1


def test_a_leader_without_an_active_follower_steps_down(leader):
    leader.core.active = {SECOND: False, THIRD: False}
    leader.hang()
    leader.tick(STALL + 1)
    assert leader.core.asked == ["step down"]


def test_a_leader_whose_disk_recovers_during_the_transfer_stays(leader):
    leader.hang()
    leader.tick(STALL + 1)
    leader.work.finished += 1
    leader.durable = LogIndex(11)
    leader.tick(10 * ELECTION)
    assert leader.core.asked == [SECOND]


def test_a_new_leader_stays_for_a_multiple_of_the_duration_of_its_election():
    leader = Leader()
    leader.handover.role_changed(RaftRole.CANDIDATE)
    leader.core.role = RaftRole.CANDIDATE
    leader.tick(5)
    leader.core.role = RaftRole.LEADER
    leader.core.has_committed_in_term = False
    leader.handover.role_changed(RaftRole.LEADER)
    leader.hang()
    leader.tick(4)
    leader.core.has_committed_in_term = True
    leader.tick()
    leader.tick(10 * LEADERSHIP_PER_ELECTION - 1)
    assert leader.watch.is_slowest
    assert leader.core.asked == []
    leader.tick()
    assert leader.core.asked == [SECOND]


def test_a_follower_transfers_no_leadership(leader):
    leader.hang()
    leader.core.role = RaftRole.FOLLOWER
    leader.tick(HANG)
    assert leader.core.asked == []


@pytest.mark.parametrize("ticks", [(0, 5), (5, 5), (6, 5)])
def test_a_policy_with_limits_out_of_order_is_a_bug(ticks):
    with pytest.raises(AssertionError):
        DiskPolicy(*ticks)
