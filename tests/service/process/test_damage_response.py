"""What a node does when it finds damage."""

from types import SimpleNamespace

import pytest

from taskraft_replication.damage import Damage, DamagedPart
from taskraft_replication.errors import LogUnreadable
from taskraft_service.process.damage_response import DamageResponse
from taskraft_service.storage.rocks import StateDamaged


def response_of(voters, *, is_replaced=True):
    """Return the reaction of a node with these voters, and the failures that it causes."""
    failures = []
    node = SimpleNamespace(membership=SimpleNamespace(voters=voters), fail=failures.append)
    return DamageResponse(node, lambda error: is_replaced), failures


def failures_after(part, voters, *, is_replaced=True):
    response, failures = response_of(voters, is_replaced=is_replaced)
    response.damage_found(Damage(part, "file", 7, "checksum 1", "2"))
    return failures


def test_a_damaged_state_is_rebuilt_while_there_are_other_voters():
    (error,) = failures_after(DamagedPart.STATE, {1, 2, 3})
    assert isinstance(error, StateDamaged)
    assert error.is_lost
    assert "file" in str(error)


@pytest.mark.parametrize("part", [DamagedPart.LOG, DamagedPart.METADATA])
def test_a_node_with_a_damaged_log_or_vote_becomes_a_new_member(part):
    (error,) = failures_after(part, {1, 2, 3})
    assert isinstance(error, LogUnreadable)
    assert failures_after(part, {1, 2, 3}, is_replaced=False) == []


@pytest.mark.parametrize("part", DamagedPart)
def test_damage_leaves_a_lone_voter_running(part):
    assert failures_after(part, {1}) == []


@pytest.mark.parametrize(
    ("voters", "is_lost", "stops"),
    [({1, 2, 3}, True, True), ({1}, True, False), ({1}, False, True)],
)
def test_damage_that_a_call_has_read_stops_a_node_that_others_can_help(voters, is_lost, stops):
    response, failures = response_of(voters)
    error = StateDamaged("block 7", is_lost=is_lost)
    response.damage_met(error)
    assert failures == [error] * stops
