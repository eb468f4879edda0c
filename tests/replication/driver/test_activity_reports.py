"""The driver passes reports of activity between the core and the peers."""

import pytest

from taskraft_replication.core.types import MemberId, MessageKind, Term
from tests.replication.driver.test_driver import Watched

K = MessageKind


@pytest.fixture
def member() -> Watched:
    return Watched()


def test_a_follower_reports_received_bytes_once_per_tick(member):
    member.hear(K.HEARTBEAT, 2, 2)
    for expected in (1, 2):
        for _ in range(5):
            member.driver.leader_alive(MemberId(2), Term(2))
        assert member.told_alive == [(2, 2)] * expected
        member.driver.tick()
    member.driver.leader_alive(MemberId(3), Term(2))
    member.driver.leader_alive(MemberId(2), Term(1))
    assert member.told_alive == [(2, 2)] * 2
    member.driver.leader_alive(MemberId(2), Term(2))
    assert member.told_alive == [(2, 2)] * 3


def test_a_follower_that_receives_bytes_is_active(member):
    member.lead()
    progress = member.driver.core.status().progress
    assert not progress[MemberId(3)].recent_active
    member.driver.follower_alive(MemberId(3), Term(2))
    assert member.driver.core.status().progress[MemberId(3)].recent_active


def test_the_peers_learn_the_term_of_this_members_leadership(member):
    member.hear(K.HEARTBEAT, 2, 2)
    assert member.leading_terms == []
    member.lead(3)
    assert member.leading_terms == [3]
    member.hear(K.HEARTBEAT, 2, 4)
    assert member.leading_terms == [3, 0]
    member.hear(K.HEARTBEAT, 3, 5)
    assert member.leading_terms == [3, 0]
