"""Check in virtual time how fast a group recovers, and which delays cause no election."""

from __future__ import annotations

from statistics import median

import pytest

from tests.sim.world import World


def failover_ms(seed: int) -> int:
    """Kill the leader at a random moment; return the time until a new leader commits an entry."""
    world = World(seed, 3, is_scripted=True)
    leader = world.elect()
    world.elapse(world.rng.randrange(300))
    killed_at = world.schedule.now_us
    leader.stop(power=False)
    world.network.forget(leader.id)
    for each in world.members.values():
        world._lost(each.id, leader.id)
    world.until(lambda: world.leader is not None)
    successor = world.leader
    world.until(lambda: committed(successor))
    return (world.schedule.now_us - killed_at) // 1000


def committed(member) -> bool:
    log = member.driver.core._member.log
    return log.term(log.commit_index) == member.driver.core.term


def test_the_median_failover_takes_less_than_600_ms():
    times = sorted(failover_ms(seed) for seed in range(60))
    assert median(times) < 600
    assert times[-2] < 1000


@pytest.mark.parametrize("seed", range(5))
def test_fsync_stalls_of_200_ms_cause_no_election(seed):
    world = World(seed, 3, is_scripted=True)
    leader = world.elect()
    term = leader.driver.core.term
    for member in world.members.values():
        member.storage_thread.sync_us = (200_000, 200_000)
    for _ in range(10):
        proposals = world.propose(leader, 3)
        world.until_done(proposals)
    world.elapse(2000)
    assert world.leader is leader
    assert leader.driver.core.term == term


def test_an_idle_group_keeps_its_leader_and_sends_only_heartbeats():
    world = World(1, 3, is_scripted=True)
    leader = world.elect()
    world.elapse(100)
    before = world.network.messages
    world.elapse(10_000)
    assert world.leader is leader
    # The leader sends a heartbeat to each of two followers and gets two replies, ten times a
    # second.
    assert world.network.messages - before <= 4 * 101
