"""Check that the driver reports network events to the core."""

from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import RaftRole
from tests.sim.test_known_failures import cut, scripted


def state_of(leader, follower):
    return leader.driver.core.status().progress[follower.id].state


def test_a_leader_probes_a_follower_after_lost_messages_and_then_replicates_again():
    world, leader, (near, _) = scripted()
    world.until(lambda: state_of(leader, near) is ProgressState.REPLICATE)
    leader.driver.unreachable(near.id)
    assert state_of(leader, near) is ProgressState.PROBE
    world.until(lambda: state_of(leader, near) is ProgressState.REPLICATE)
    world.settle()


def test_a_follower_forgets_its_leader_only_when_that_leaders_stream_ends():
    world, leader, (near, far) = scripted()
    cut(world, leader, near, far)
    core = near.driver.core
    assert not near.driver.forget_leader(far.id)
    assert core.leader == leader.id
    assert near.driver.forget_leader(leader.id)
    assert core.leader == 0
    assert not leader.driver.forget_leader(leader.id)
    assert leader.driver.core.role is RaftRole.LEADER
    world.settle()
