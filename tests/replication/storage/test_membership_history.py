"""The history keeps the memberships that a start or a snapshot may need, and no others."""

import pytest

from taskraft_replication.core.types import ConfState, LogIndex, MemberId
from taskraft_replication.errors import LogDamaged
from taskraft_replication.storage.membership_history import BOOTSTRAP_INDEX, MembershipHistory

FOUNDERS = ConfState(voters=(MemberId(1), MemberId(2), MemberId(3)))
DURABLE = LogIndex(1)


@pytest.fixture
def history():
    return MembershipHistory([(BOOTSTRAP_INDEX, FOUNDERS)])


def alone(number):
    return ConfState(voters=(MemberId(number),))


def test_memberships_below_the_durable_index_are_dropped(history):
    for number in range(1, 6):
        kept = history.add(LogIndex(10 * number), alone(number), LogIndex(35))
    assert [index for index, _ in kept] == [30, 40, 50]
    assert len(history) == 3


def test_a_snapshot_keeps_its_membership_below_the_durable_index(history):
    history.floor = LogIndex(25)
    for number in range(1, 6):
        kept = history.add(LogIndex(10 * number), alone(number), LogIndex(35))
    assert [index for index, _ in kept] == [20, 30, 40, 50]


def test_a_membership_is_in_force_from_its_index_on(history):
    history.add(LogIndex(10), alone(1), DURABLE)
    assert history.at(LogIndex(9)) == FOUNDERS
    assert history.at(LogIndex(10)) == history.at(LogIndex(11)) == alone(1)
    with pytest.raises(LogDamaged, match="no membership for entry 0"):
        history.at(LogIndex(0))


def test_a_committed_membership_never_changes(history):
    history.add(LogIndex(5), alone(1), DURABLE)
    with pytest.raises(AssertionError, match="never changes"):
        history.add(LogIndex(5), FOUNDERS, DURABLE)


def test_a_group_is_at_its_beginning_until_its_membership_changes(history):
    assert history.is_at_its_beginning
    history.add(LogIndex(5), FOUNDERS, DURABLE)
    assert not history.is_at_its_beginning


def test_a_snapshot_replaces_all_memberships(history):
    history.add(LogIndex(5), alone(1), DURABLE)
    assert history.restart(LogIndex(9), FOUNDERS) == history.all() == [(9, FOUNDERS)]


def test_entries_that_are_applied_again_fill_the_gap_that_a_repair_has_left():
    """The member had forgotten the membership of entry 20, then got the state of entry 10."""
    history = MembershipHistory([(LogIndex(10), alone(1)), (LogIndex(30), alone(3))])
    assert history.add(LogIndex(20), alone(2), LogIndex(10)) == [
        (10, alone(1)),
        (20, alone(2)),
        (30, alone(3)),
    ]
