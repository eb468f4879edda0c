"""Run the simulation of founding and joining, with fixed seeds and with a crash at each step."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.founding_world import FoundingWorld

FIXED = 40
GROUP = 10
STEPS = 45
"""Number of disk operations of a founder until it takes part, and some more."""


@cache
def run(seed: int) -> Counter[str]:
    world = FoundingWorld(seed)
    world.run()
    return world.counts


@pytest.mark.parametrize("first", range(0, FIXED, GROUP))
def test_fixed_seeds_found_one_cluster_that_every_node_joins(first):
    for seed in range(first, first + GROUP):
        assert run(seed)["answer accepted"]


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("name", ["f1", "f2", "j1"])
def test_a_node_that_crashes_at_any_step_founds_or_joins_the_same_cluster(name, power):
    for step in range(1, STEPS):
        world = FoundingWorld(step, founders=3, is_quiet=True)
        world.loses_power = power
        world.hosts[name].disk.crash_at = step
        while not world.counts["crash"]:
            world.step()
        world.settle()
        assert world.counts["crash"] == 1


def test_a_founder_that_lost_its_disk_does_not_found_the_cluster_again():
    world = FoundingWorld(1, founders=3, is_quiet=True)
    world.settle()
    leader = world.leader
    assert leader is not None
    world.wipe(leader.host.name)
    world.settle()
    assert world.counts["DirectoryUnknown"] == 1
    assert leader.host.name in {each.name for each in world.leader.driver.membership.roster.members}


@pytest.mark.parametrize("seed", range(8))
def test_a_founder_that_loses_its_disk_at_the_first_election_is_refused(seed):
    world = FoundingWorld(seed, founders=3, is_quiet=True)
    while world.leader is None:
        world.step()
    leader = world.leader.host.name
    world.wipe(next(name for name in world.founders if name != leader))
    world.settle()
    assert world.counts["DirectoryUnknown"] >= 1


@pytest.mark.parametrize("name", ["f1", "f2", "f3", "j1"])
def test_a_lying_disk_that_lost_its_files_does_not_bring_back_its_member(name):
    """The member on this disk has forgotten votes and entries, so the others must refuse it."""
    world = FoundingWorld(1, founders=3, is_quiet=True)
    world.let_disk_lie(name)
    world.settle()
    world.loses_power = True
    world.crashed(name)
    world.settle()
    assert world.counts["power loss of a lying disk"] == 1
    assert world.counts["DirectoryUnknown"] + world.counts["join: MEMBER_EXISTS"] == 1


def test_a_lying_disk_loses_nothing_while_it_has_power():
    world = FoundingWorld(1, founders=3, is_quiet=True)
    world.let_disk_lie("f2")
    world.settle()
    world.loses_power = False
    world.crashed("f2")
    world.settle()
    assert world.counts["crash"] == 1
    assert not world.counts["DirectoryUnknown"]


def test_a_joined_node_that_lost_its_disk_is_refused_until_it_is_removed():
    world = FoundingWorld(1, founders=3, is_quiet=True)
    world.settle()
    world.wipe("j1")
    world.settle()
    assert world.counts["join: MEMBER_EXISTS"] == 1


def test_every_kind_of_fault_occurs():
    counts: Counter[str] = Counter()
    for seed in range(FIXED):
        counts += run(seed)
    for name in (
        "crash",
        "wipe",
        "power loss of a lying disk",
        "hello refused",
        "DirectoryUnknown",
        "join: MEMBER_EXISTS",
    ):
        assert counts[name] > 5, counts
    assert counts["founding given up"] < FIXED // 10, counts


def test_a_seed_determines_the_whole_run():
    def trace_of(seed: int) -> list[str]:
        world, lines = FoundingWorld(seed), []
        world.trace = lines.append
        world.run()
        return lines

    assert trace_of(3) == trace_of(3)
    assert trace_of(3) != trace_of(4)
