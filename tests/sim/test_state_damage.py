"""Check that a damaged state is repaired whoever finds the damage, also if more is damaged."""

from random import Random

import pytest

from taskraft_replication.core.types import LogIndex
from tests.sim.machine import NOTHING, FrozenState
from tests.sim.state_damage import Finder, NextDamage, StateDamage
from tests.sim.test_known_failures import scripted
from tests.sim.test_snapshot_transfers import leave_behind
from tests.sim.violation import Violation
from tests.sim.world import Read


def trimmed():
    """Return a world whose members have durable states, and logs that begin behind entry 1."""
    world, leader, (far, near) = scripted()
    leave_behind(world, leader, far)
    world.until(lambda: far.machine.applied_index == leader.machine.applied_index)
    for each in (far, near):
        each.machine.flush_durably()
    return world, leader, far, near


def damage(world, member, finder, following=NextDamage.NONE):
    member.next_damage = following
    world.faults.inflict(member, StateDamage(finder), Random(1))


def whole(world, member):
    """Wait until the member has been repaired and has applied the log."""
    world.until(
        lambda: (
            member.is_running
            and member.damage is None
            and world.leader is not None
            and member.machine.applied_index >= world.leader.machine.applied_index
        )
    )


def use(world, leader, member, far, finder):
    """Let the finder come to the damage of ``member``."""
    if finder is Finder.CALL:
        read = Read(world, member)
        member.act(lambda: member.driver.read_index(read))
        world.until(read.done)
    elif finder is Finder.REPLAY:
        world.propose(leader, 1)
    elif finder in (Finder.SNAPSHOT, Finder.SENDING):
        far.stop(power=False)
        far.machine.lose(NOTHING)
        far.has_lost_state = True
        far.start()
    world.until(lambda: world.counts[f"damage found by {finder.value}"] == 1)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("finder", Finder)
def test_a_damaged_state_is_repaired_whoever_finds_the_damage(finder, leads):
    world, leader, far, near = trimmed()
    member, other = (leader, near) if leads else (near, leader)
    if finder in (Finder.SNAPSHOT, Finder.SENDING):
        world.network.cut |= {(far.id, other.id), (other.id, far.id)}
    damage(world, member, finder)
    use(world, leader, member, far, finder)
    world.network.heal()
    whole(world, member)
    world.settle()
    assert world.counts[f"damage found by {finder.value}"] == 1
    assert world.counts["state repaired by a peer"] >= 1


@pytest.mark.parametrize(
    ("following", "repairs"),
    [(NextDamage.SENDER, 2), (NextDamage.RECEIVED, 1), (NextDamage.REPAIRED, 2)],
)
def test_a_repair_ends_although_more_is_damaged(following, repairs):
    world, leader, _, _ = trimmed()
    damage(world, leader, Finder.START, following)
    world.until(lambda: world.counts[f"fault: second damage, to {following.value}"] == 1)
    for each in world.members.values():
        if each.damage is not None:
            world.faults.state_damage_found(each)
    world.until(lambda: world.counts["state repaired by a peer"] == repairs)
    for each in world.members.values():
        whole(world, each)
    world.settle()
    assert world.counts["state repaired by a peer"] == repairs


def test_a_state_is_repaired_although_no_peer_has_written_what_the_log_lacks():
    world, leader, far, near = trimmed()
    for each in (far, near):
        each.machine._pace = 1 << 30
    first = leader.view.first_index()
    for _ in range(4):
        world.until_done(world.propose(leader, 30))
    leader.machine.flush_durably()
    world.propose(leader, 1)
    world.until(lambda: leader.view.first_index() > first + 60)
    assert max(far.machine.snapshot_index, near.machine.snapshot_index) < first + 60
    damage(world, leader, Finder.START)
    whole(world, leader)
    world.settle()


def test_a_commit_index_that_needs_no_state_is_not_forgotten_with_the_state():
    world, leader, _, _ = trimmed()
    leader.change_stored(LogIndex(1 << 30))
    damage(world, leader, Finder.START)
    with pytest.raises(Violation, match="forgot that 1073741824 is committed"):
        whole(world, leader)


def test_a_member_that_goes_on_with_a_state_that_it_found_damaged_is_a_violation():
    world, leader, _, _ = trimmed()
    world.state_damage_found = lambda member: None
    leader.damage = StateDamage(Finder.CALL)
    with pytest.raises(Violation, match="goes on with a state that it has found damaged"):
        use(world, leader, leader, leader, Finder.CALL)


def test_a_state_that_no_member_had_is_not_installed(monkeypatch):
    """The received content is wrong although its checksum is right."""
    world, leader, _, _ = trimmed()
    wrong = FrozenState(LogIndex(0), NOTHING.digest, {}).read(0, 1 << 40)
    monkeypatch.setattr("tests.sim.checked_machine.damaged", lambda _: wrong)
    damage(world, leader, Finder.START, NextDamage.RECEIVED)
    with pytest.raises(Violation, match="that no member had"):
        whole(world, leader)


def test_a_member_that_is_told_without_a_fault_that_it_differs_is_a_violation():
    world, leader, _, _ = trimmed()
    leader.machine.digest = NOTHING.digest
    with pytest.raises(Violation, match="no fault changed it"):
        world.elapse(5000)
