"""Replay failures that were reproduced in PySyncObj 0.3.17 or took long to find in taskraft.

None of these failures may occur. The invariants are checked after each step; the assertions here
check the answers to clients.
"""

from __future__ import annotations

from random import Random

import pytest

from taskraft_replication.core.confchange import ConfChange, MemberChange, MemberChangeKind
from taskraft_replication.core.errors import ConfChangeFault
from taskraft_replication.core.types import MemberInfo, RaftRole
from taskraft_replication.errors import ProposalLost
from taskraft_replication.membership.roster import change_of_several
from tests.replication.storage.test_crash_points import Promises, append
from tests.sim.disk import Crashed, SimDisk
from tests.sim.member import Member
from tests.sim.operator import Change
from tests.sim.world import World


def scripted(members: int = 3, seed: int = 1) -> tuple[World, Member, list[Member]]:
    """Return a world with a leader, and its followers."""
    world = World(seed, members, is_scripted=True)
    leader = world.elect()
    followers = [each for each in world.members.values() if each is not leader]
    return world, leader, followers


def cut(world: World, one: Member, *others: Member) -> None:
    for other in others:
        world.network.cut |= {(one.id, other.id), (other.id, one.id)}


@pytest.mark.parametrize("seed", range(5))
def test_a_repeated_append_does_not_shorten_an_acknowledged_log(seed):
    """Failure A: after a reset the leader sends a range twice, and crashes between both."""
    world, leader, (near, far) = scripted(seed=seed)
    cut(world, leader, far)
    cut(world, near, far)
    world.network.double = 1.0
    world.network.reorder = 0.5
    proposals = world.propose(leader, 6)
    world.until(lambda: sum(each.done() for each in proposals) >= 3)
    world.network.reset((leader.id, near.id))
    leader.driver.unreachable(near.id)
    world.until_done(proposals)
    last = leader.machine.applied_index
    world.faults.end_life(leader, "kill", power=True, rng=world.rng)
    world.network.heal()
    world.until(lambda: min(near.machine.applied_index, far.machine.applied_index) >= last)
    world.settle()
    assert all(each.error is None for each in proposals)


def test_a_snapshot_does_not_commit_the_divergent_tail_of_its_receiver():
    """Failure B: a deposed leader gets a snapshot and must not apply its uncommitted entries."""
    world, leader, (first, second) = scripted()
    cut(world, leader, first, second)
    orphans = world.propose(leader, 4)
    world.until(lambda: world.leader in {first, second})
    successor = world.elect()
    for _ in range(12):
        proposals = world.propose(successor, 30)
        world.until_done(proposals)
    successor.machine.flush_durably()
    trimmer = successor.driver._trimmer
    trimmer._policy, trimmer.flush_at = type(trimmer._policy)(1, 0), 0
    world.propose(successor, 1)
    world.until(lambda: successor.view.first_index() > leader.machine.applied_index + 10)
    assert world.counts["snapshots"] == 0
    world.network.heal()
    world.until(lambda: world.counts["snapshots"] > 0 and leader.machine.applied_index > 100)
    assert all(isinstance(each.error, ProposalLost) for each in orphans)
    world.settle()


def test_an_acknowledgement_of_an_earlier_leadership_does_not_count():
    """Failure C: acknowledgements stall, and arrive when the same member leads again."""
    world, leader, followers = scripted(5)
    near, *others = followers
    world.network.stall((near.id, leader.id))
    cut(world, leader, *others)
    world.propose(leader, 5)
    world.until(lambda: near.view.last_index() == leader.view.last_index())
    cut(world, near, leader, *others)
    world.until(lambda: world.leader in set(others))
    successor = world.elect()
    proposals = world.propose(successor, 3)
    world.until_done(proposals)
    world.network.cut.clear()
    cut(world, near, *others)
    world.until(lambda: leader.view.last_index() >= successor.view.last_index())
    successor.driver.transfer_leader(leader.id)
    world.until(lambda: world.leader is leader)
    cut(world, leader, *followers)
    orphans = world.propose(leader, 3)
    world.network.release()
    world.elapse(300)
    assert not any(each.done() and each.error is None for each in orphans), (
        "no other member has the entries"
    )
    world.settle()


def test_a_cut_off_leader_cannot_remove_the_other_members():
    """Failure D: a leader without a quorum is asked to remove all other members."""
    world, leader, followers = scripted(5)
    cut(world, leader, *followers)
    core = leader.driver.core
    faults = [
        core.propose_conf_change(ConfChange((MemberChange(MemberChangeKind.REMOVE, follower.id),)))
        for follower in followers
    ]
    assert faults == [None] + 3 * [ConfChangeFault.UNAPPLIED_CHANGE]
    leader.driver.pump()
    world.until(lambda: core.role is not RaftRole.LEADER)
    assert len(core.status().configuration.voters) == 5
    world.until(lambda: world.leader in set(followers))
    world.settle()


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_during_a_trim_loses_nothing(power):
    """Failure E: the process ends at each operation of a trim."""
    for crash_at in range(1, 12):
        disk = SimDisk(Random(crash_at))
        promises = Promises(disk)
        promises.open()
        append(promises)
        disk.crash_at = disk.operations + crash_at
        try:
            promises.trim(25)
        except Crashed:
            if power:
                disk.lose_power()
        assert promises.check() >= promises.applied


def change(world: World, leader: Member, kind: MemberChangeKind, member: Member) -> int:
    """Change the membership; return the index of the change."""
    wanted = change_of_several((MemberChange(kind, member.id),), (MemberInfo(member.id),))
    outcome = Change(world)
    leader.driver.propose_change(wanted, outcome)
    world.until(outcome.done)
    assert world.counts["fault: membership change"], world.counts
    return leader.machine.applied_index


@pytest.mark.parametrize("power", [False, True])
def test_the_last_remaining_member_leads_after_two_crashes_in_a_row(power):
    """Failure F: the second crash comes while a part of the changes is replayed.

    No other member is left. The random runs needed three million steps to find this failure.
    """
    world, leader, (other,) = scripted(2)
    first = change(world, leader, MemberChangeKind.UPDATE, other)
    change(world, leader, MemberChangeKind.REMOVE, other)
    world.operator.take_all_away()
    assert leader.machine.durable_index < first, "otherwise no change is replayed"
    for _ in range(2):
        leader.stop(power=power)
        leader.start()
        world.until(lambda: leader.machine.applied_index == first)
    leader.stop(power=power)
    leader.start()
    world.until(lambda: leader.serves)
    world.settle()
