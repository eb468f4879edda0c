"""A member whose disk is slow loses no work, and does not hold up the elections of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskraft_replication.core.types import LogIndex, MemberId, Message, MessageKind, RaftRole, Term
from taskraft_replication.driver.disk_watch import STALL_TICKS
from tests.replication.driver.test_driver import Watched, append_of, entries
from tests.replication.promising_member import SELF

K = MessageKind


@pytest.fixture
def member() -> Watched:
    return Watched()


def test_writes_that_waited_for_a_write_start_when_it_ends(member):
    """The first write gives the core no work: nothing else may be needed to start the second."""
    for first in (2, 4):
        batch = entries(first, first + 1)
        member.driver.receive([replace(append_of(batch, 1), log_term=Term(min(2, first - 1)))])
        member.driver.pump()
    assert member.storage_work.requested == 1
    member.settle()
    assert [m.index for m in member.take_sent() if m.kind is K.APPEND_REPLY] == [3, 5]
    assert member.driver.is_synced


def receive(member, first, commit):
    """Let the member receive one entry of the leader, and pump."""
    append = append_of(entries(first, first), commit)
    member.driver.receive([replace(append, log_term=Term(min(2, first - 1)))])
    member.driver.pump()


def end_write(member):
    """End the running write, as the worker does, and pump."""
    work, then = member._work.popleft()
    then(work())
    member.driver.pump()


def test_a_follower_acknowledges_a_write_before_it_applies_what_is_committed(member):
    receive(member, 2, 1)
    end_write(member)
    member.take_sent()
    receive(member, 3, 2)
    assert member.machine.applied_index == 1, "entry 2 waits for the write of entry 3"
    work, then = member._work.popleft()
    then(work())
    assert [m.index for m in member.take_sent() if m.kind is K.APPEND_REPLY] == [3]
    assert member.machine.applied_index == 1
    member.driver.pump()
    assert member.machine.applied_index == 2


def test_committed_entries_wait_for_one_write_at_most(member):
    receive(member, 2, 1)
    end_write(member)
    receive(member, 3, 2)
    member.driver.receive([replace(append_of(entries(4, 4), 2), log_term=Term(2))])
    end_write(member)
    assert member._work, "the write of entry 4 runs"
    assert member.machine.applied_index == 2


def test_committed_entries_do_not_wait_behind_others(member):
    for first in (2, 3):
        receive(member, first, 1)
        end_write(member)
    receive(member, 4, 2)
    assert member.machine.applied_index == 1
    receive(member, 5, 3)
    assert member._work, "the write of entry 4 runs"
    assert member.machine.applied_index >= 2


def test_committed_entries_do_not_wait_for_a_stalled_disk(member):
    receive(member, 2, 1)
    end_write(member)
    receive(member, 3, 2)
    for _ in range(STALL_TICKS):
        member.driver.tick()
    member.driver.pump()
    assert member.driver.disk.is_stalled
    assert member.machine.applied_index == 2


def test_a_vote_that_waited_for_a_write_is_sent_when_it_ends(member):
    """The entries are of an earlier term, so the core ignores the report of the write."""
    member.driver.receive([append_of(entries(2, 3), 1)])
    member.driver.pump()
    request = Message(K.VOTE, SELF, MemberId(3), Term(5), Term(2), LogIndex(9), context=b"transfer")
    member.driver.receive([request])
    member.driver.pump()
    member.settle()
    assert K.VOTE_REPLY in [m.kind for m in member.take_sent()]


def test_a_follower_with_a_hung_disk_forgets_a_silent_leader(member):
    member.append(2, 2, entries(2, 3), 3)
    member.driver.receive([replace(append_of(entries(4, 5), 3), log_term=Term(2))])
    member.driver.pump()
    for _ in range(STALL_TICKS):
        member.driver.tick()
    assert member.driver.core.leader == 2
    for _ in range(20):
        member.driver.tick()
    assert member.driver.disk.is_stalled
    assert (member.driver.core.leader, member.driver.core.role) == (0, RaftRole.FOLLOWER)
