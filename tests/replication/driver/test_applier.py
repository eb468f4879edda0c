"""Entries are applied in order, a membership change only after it is stored."""

from __future__ import annotations

from random import Random

import pytest

from taskraft_replication.core.confchange import MemberChangeKind, encode
from taskraft_replication.core.types import (
    ConfState,
    Entry,
    EntryKind,
    LogIndex,
    MemberId,
    MemberInfo,
    Message,
    MessageKind,
    Term,
)
from taskraft_replication.membership.roster import change_of
from tests.failpoints.failpoints import Failpoints
from tests.replication import promising_member
from tests.replication.counting_machine import CountingMachine
from tests.replication.driver.test_driver import Watched, entries
from tests.replication.promising_member import SELF, Promises, PromisingMember
from tests.sim.disk import SimDisk

K = MessageKind


@pytest.fixture
def member() -> Watched:
    return Watched()


def adding(member: int, index: int) -> Entry:
    """Return the entry that adds a learner, with the learner's roster record."""
    info = MemberInfo(MemberId(member), f"n{member}", directory_id=f"d{member}")
    change = change_of(MemberChangeKind.ADD_LEARNER, info)
    return Entry(Term(2), LogIndex(index), encode(change), EntryKind.CONF_CHANGE_V2)


def test_applied_entries_are_reported_to_the_core(member):
    member.append(2, 2, entries(2, 6), 6)
    assert member.driver.core.applied_index == 6


def test_nothing_is_applied_while_a_change_is_being_stored(member):
    before = member.driver.membership
    member.append(2, 2, entries(2, 3), 3)
    log = [*entries(4, 5), adding(4, 6), *entries(7, 8)]
    fields = {"index": 3, "log_term": 2, "entries": tuple(log), "commit": 8}
    member.driver.receive([Message(K.APPEND, SELF, 2, 2, **fields)])
    member.driver.pump()
    while member.driver.membership == before:
        if member._work:
            work, then = member._work.popleft()
            then(work())
        member.driver.pump()
    assert member.driver.membership.learners == (4,)
    for _ in range(3):
        member.driver.pump()
    assert member.machine.applied_index == 5
    assert len(member._work) == 1
    work, then = member._work.popleft()
    member._is_pump_due = False
    then(work())
    assert member.machine.applied_index == 6
    assert member.is_pump_due, "further entries are pending"
    member.settle()
    assert member.machine.applied_index == 8


def test_consecutive_changes_keep_the_roster_of_all_members(member):
    member.append(2, 2, [adding(4, 2), adding(5, 3)], 3)
    names = [info.name for info in member.driver.membership.roster.members]
    assert names == ["n1", "n2", "n3", "n4", "n5"]
    assert member.storage.memberships.at(LogIndex(2)).learners == (4,)


def test_a_joining_member_applies_nothing_before_its_snapshot(monkeypatch):
    monkeypatch.setattr(promising_member, "FOUNDERS", ConfState())
    fs = SimDisk(Random(1))
    joining = PromisingMember(fs, CountingMachine(), Failpoints(), Promises())
    assert joining.machine.applied_index == 0
    assert joining.driver.core.applied_index == 0


@pytest.mark.shows_fault(
    "disk",
    "RocksDB cannot write as fast as tasks change",
    "postpones batches of the state. After 64 000 changed tasks or 64 MiB of entries, the node"
    " applies no entries until RocksDB has caught up, so a leader answers later; the log and the"
    " heartbeats continue",
)
def test_entries_wait_while_the_state_machine_waits_for_its_disk(member):
    member.machine.is_choked = True
    member.append(2, 2, entries(2, 5), 5)
    assert member.machine.applied_index == 1
    assert member.driver.core.commit_index == 5
    member.driver.tick()
    assert not member.is_pump_due
    assert member.driver.disk.applying_waited_ticks == 1
    member.machine.is_choked = False
    member.driver.tick()
    assert member.is_pump_due
    member.settle()
    assert member.machine.applied_index == 5
    assert member.driver.disk.applying_waited_ticks == 0


def test_nothing_is_applied_while_the_state_machine_writes_in_steps(member):
    member.machine.steps_left = 2
    member.append(2, 2, entries(2, 5), 5)
    assert member.machine.steps_left == 0
    assert member.machine.applied_index == 5, "each pump does one step, or applies one slice"
    member.machine.steps_left = 2
    member.driver.pump()
    assert member.machine.steps_left == 1
    assert member.is_pump_due, "a write goes on without further entries"


def test_entries_wait_while_the_state_machine_waits_for_other_members(member):
    member.machine.held_index = 4
    member.append(2, 2, entries(2, 6), 6)
    assert member.machine.applied_index == 3
    assert member.observed.count(3) == 1
    member.driver.tick()
    assert not member.is_pump_due
    assert member.driver.disk.applying_waited_ticks == 0, "the disk is not at fault"
    member.machine.held_index = 0
    member.driver.tick()
    assert member.is_pump_due
    member.settle()
    assert member.machine.applied_index == 6
    assert member.driver.core.applied_index == 6
