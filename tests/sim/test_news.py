"""Check that the core is told what the driver learns of the network."""

from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.types import RaftRole
from tests.sim.test_known_failures import cut, scripted


def state_of(leader, follower):
    return leader.driver.core.status().progress[follower.id].state


def test_a_leader_whose_messages_were_lost_stops_sending_ahead_and_begins_again():
    world, leader, (near, _) = scripted()
    world.until(lambda: state_of(leader, near) is ProgressState.REPLICATE)
    leader.driver.unreachable(near.id)
    assert state_of(leader, near) is ProgressState.PROBE
    world.until(lambda: state_of(leader, near) is ProgressState.REPLICATE)
    world.settle()


def test_a_follower_forgets_the_leader_whose_stream_has_ended_but_nobody_else():
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
