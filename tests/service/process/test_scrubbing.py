"""What a node does when its scrubber finds damage."""

from types import SimpleNamespace

import pytest

from taskraft_replication.damage import Damage, DamagedPart
from taskraft_service.process.scrubbing import DamageResponse
from taskraft_service.storage.rocks import StateDamaged


def failures_after(part, voters):
    found = []
    node = SimpleNamespace(membership=SimpleNamespace(voters=voters), fail=found.append)
    DamageResponse(node).damage_found(Damage(part, "file", 7, "checksum 1", "2"))
    return found


def test_a_damaged_state_is_rebuilt_while_there_are_other_voters():
    (error,) = failures_after(DamagedPart.STATE, {1, 2, 3})
    assert isinstance(error, StateDamaged)
    assert error.is_lost
    assert "file" in str(error)


@pytest.mark.parametrize(
    ("part", "voters"),
    [
        (DamagedPart.STATE, {1}),
        (DamagedPart.LOG, {1, 2, 3}),
        (DamagedPart.METADATA, {1, 2, 3}),
    ],
)
def test_other_damage_and_a_lone_voter_leave_the_node_running(part, voters):
    assert failures_after(part, voters) == []
