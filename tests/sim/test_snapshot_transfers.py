"""Check snapshot transfers during changes of leader and membership."""

from taskraft_replication.core.confchange import (
    ConfChange,
    ConfChangeTransition,
    MemberChange,
    MemberChangeKind,
)
from tests.sim.test_known_failures import cut, scripted
from tests.sim.world import World


def leave_behind(world, leader, far):
    """Trim the leader's log beyond the entries of ``far``, which is cut off during the trim."""
    cut(world, far, *(each for each in world.members.values() if each is not far))
    for _ in range(12):
        proposals = world.propose(leader, 30)
        world.until_done(proposals)
    leader.machine.flush_durably()
    trimmer = leader.driver._trimmer
    trimmer._policy, trimmer.flush_at = type(trimmer._policy)(1, 0), 0
    world.propose(leader, 1)
    world.until(lambda: leader.view.first_index() > far.machine.applied_index + 10)
    world.network.heal()


def test_a_leader_may_be_elected_again_during_its_own_snapshot_transfer():
    world, leader, (far, near) = scripted()
    deliver = world.send_snapshot
    held = []
    world.send_snapshot = lambda *transfer: held.append(transfer)
    leave_behind(world, leader, far)
    world.until(lambda: held)
    leader.driver.transfer_leader(near.id)
    world.until(lambda: world.leader is near)
    near.driver.transfer_leader(leader.id)
    world.until(lambda: world.leader is leader)
    world.elapse(2000)
    world.send_snapshot = deliver
    for transfer in held:
        deliver(*transfer)
    world.settle()
    assert far.machine.applied_index >= near.view.first_index() - 1, "the member got a snapshot"


def test_a_voter_that_joins_an_idle_group_gets_a_snapshot_that_names_it():
    world = World(1, 1, is_scripted=True)
    leader = world.elect()
    world.elapse(1000)
    newcomer = world.join()
    change = ConfChange(
        (MemberChange(MemberChangeKind.ADD_VOTER, newcomer),), ConfChangeTransition.JOINT_EXPLICIT
    )
    assert leader.driver.core.propose_conf_change(change) is None
    leader.driver.pump()
    world.until(lambda: newcomer in world.members[newcomer].configuration.voters)
    world.settle()


def test_the_only_remaining_voter_restarts_without_the_removed_members():
    """Only this member's stored membership shows that the change is committed."""
    world, leader, followers = scripted()
    change = ConfChange(tuple(MemberChange(MemberChangeKind.REMOVE, each.id) for each in followers))
    assert leader.driver.core.propose_conf_change(change) is None
    leader.driver.pump()
    world.until(lambda: leader.configuration.voters == (leader.id,))
    world.until(lambda: not leader.configuration.voters_outgoing)
    world.until(lambda: leader.machine.applied_index == leader.driver.core.last_index)
    for each in followers:
        each.stop(power=True)
        each.is_damaged = True
    leader.stop(power=True)
    leader.start()
    world.until(lambda: world.leader is leader)
    world.settle()
