"""Check that messages which are not urgent are delayed, and that urgent messages are not.

Links take 0.2 to 2 ms here, fsyncs 0.1 to 3 ms. An entry is committed within 10 ms unless one of
its messages was delayed.
"""

from __future__ import annotations

import pytest

from taskraft_replication.peers.send_batcher import DELAY_MS
from tests.sim.member import Member
from tests.sim.test_known_failures import cut, scripted
from tests.sim.world import World

COMMIT_MS = 10
SEEDS = range(5)


def commit_ms(world: World, leader: Member) -> float:
    """Propose an entry; return the time until its client got the result."""
    begun_us = world.schedule.now_us
    (proposal,) = world.propose(leader, 1)
    world.until(proposal.done)
    return (world.schedule.now_us - begun_us) / 1000


def settled(seed: int, members: int = 3) -> tuple[World, Member, list[Member]]:
    """Return a group in which all members have all entries."""
    world, leader, followers = scripted(members, seed)
    commit_ms(world, leader)
    world.elapse(500)
    return world, leader, followers


def preferred(leader: Member, followers: list[Member]) -> list[Member]:
    """Return the followers that get entries at once."""
    return [each for each in followers if not leader.links.may_delay(each.id)]


@pytest.mark.parametrize("members", [3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_commit_does_not_wait_for_delayed_followers(seed, members):
    world, leader, followers = settled(seed, members)
    assert len(preferred(leader, followers)) == members // 2
    for _ in range(20):
        assert commit_ms(world, leader) < COMMIT_MS
        world.elapse(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_delayed_follower_gets_several_entries_in_one_frame(seed):
    world, leader, followers = settled(seed)
    frames: list[int] = []
    carry = leader.carry

    def watched(to, frame):
        frames.append(sum(len(message.entries) for message in frame))
        carry(to, frame)

    leader.carry = watched
    for _ in range(20):
        commit_ms(world, leader)
    last = leader.machine.applied_index
    world.elapse(DELAY_MS + 2 * COMMIT_MS)
    assert [each.view.last_index() for each in followers] == [last] * 2
    assert sum(frames) == 40
    with_entries = sum(count > 0 for count in frames)
    assert 20 < with_entries < 32, "one frame for each commit, and some for the other follower"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_preferred_follower_is_replaced_after_one_delay(seed):
    world, leader, followers = settled(seed)
    (first,) = preferred(leader, followers)
    cut(world, first, leader)
    assert commit_ms(world, leader) < DELAY_MS + COMMIT_MS
    assert first not in preferred(leader, followers)
    for _ in range(5):
        assert commit_ms(world, leader) < COMMIT_MS


@pytest.mark.parametrize("seed", SEEDS)
def test_all_members_learn_of_the_last_commit_within_one_delay(seed):
    world, leader, followers = settled(seed)
    commit_ms(world, leader)
    last = leader.machine.applied_index
    world.elapse(2 * (DELAY_MS + COMMIT_MS))
    assert [each.machine.applied_index for each in followers] == [last] * 2


def test_an_idle_group_sends_only_heartbeats_and_replies():
    world, _, _ = settled(1)
    before = world.network.frames
    world.elapse(1000)
    assert world.network.frames - before <= 4 * 11
