"""The leader proposes the next entry before it applies the committed ones."""

import pytest

from taskraft_replication.core.types import MemberId, Message, MessageKind
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
    member.take_sent()
    member.driver.propose(b"second", second)
    member.driver.pump()
    assert [(m.to, len(m.entries)) for m in member.take_sent() if m.entries] == [(2, 1), (3, 1)]
    assert first.result == 1
    assert not second.done()
    assert asked == [applied], "the leader asks once for each commit"


def test_a_follower_applies_at_once(member):
    member.driver.before_applying = lambda: True
    member.driver.receive([append_of(entries(2, 3), 3)])
    member.settle()
    assert member.machine.applied_index == 3
