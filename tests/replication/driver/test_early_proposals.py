"""The leader proposes the next entry before it applies the committed ones."""

import pytest

from taskraft_replication.core.types import LogIndex, MemberId, Message, MessageKind
from tests.replication.driver.stand_ins import Waiting
from tests.replication.driver.test_driver import Watched, append_of, entries
from tests.replication.promising_member import SELF

K = MessageKind


@pytest.fixture
def member() -> Watched:
    return Watched()


def test_the_next_entry_is_sent_before_the_committed_ones_are_applied(member):
    member.lead()
    member.acknowledge()
    member.acknowledge(3)
    applied = member.machine.applied_index
    first, second = Waiting(), Waiting()
    member.driver.propose(b"first", first)
    member.settle()
    member.take_sent()
    asked = []

    def ask() -> bool:
        asked.append(member.machine.applied_index)
        return True

    member.driver.before_applying = ask
    core = member.driver.core
    reply = Message(K.APPEND_REPLY, SELF, MemberId(2), core.term, index=core.last_index)
    member.driver.receive([reply])
    member.driver.pump()
    assert asked == [applied]
    assert member.machine.applied_index == applied, "applying waits for one pump"
    assert member.is_pump_due
    assert member.driver.is_committed
    assert not member.take_sent(), "the next entry tells the followers what is committed"
    member.driver.propose(b"second", second)
    member.driver.pump()
    commit = LogIndex(core.last_index - 1)
    sent = [(m.to, len(m.entries), m.commit) for m in member.take_sent()]
    assert sent == [(2, 1, commit), (3, 1, commit)]
    assert first.result == 1
    assert not second.done()
    assert asked == [applied], "the leader asks once for each commit"


def test_without_a_next_entry_the_followers_hear_of_the_commit_at_once(member):
    member.lead()
    member.acknowledge()
    member.acknowledge(3)
    member.driver.propose(b"only", Waiting())
    member.settle()
    member.take_sent()
    member.acknowledge()
    commit = member.driver.core.last_index
    sent = [(m.to, len(m.entries), m.commit) for m in member.take_sent()]
    assert sent == [(2, 0, commit), (3, 0, commit)]


def test_a_follower_applies_at_once(member):
    member.driver.before_applying = lambda: True
    member.driver.receive([append_of(entries(2, 3), 3)])
    member.settle()
    assert member.machine.applied_index == 3
