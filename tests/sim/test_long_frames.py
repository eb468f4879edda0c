"""A frame that takes seconds costs no election, although no message overtakes it.

In these tests a full network lets no message overtake a long frame, like buffers between two
members. Only the bytes of the frame, and the answers to them, show which members are alive.
"""

from __future__ import annotations

import pytest

from tests.sim import link
from tests.sim.test_known_failures import scripted

SECONDS = 5
"""Time of the long frame, and more than seven election timeouts."""


@pytest.fixture
def slow(monkeypatch):
    """Return a group whose links from the leader carry one long frame with the next entry."""
    steps = SECONDS * 1_000_000 // link.LONG_STEP_US
    monkeypatch.setattr(link, "LONG_STEPS", (steps, steps))
    monkeypatch.setattr(link.Link, "_capacity", no_overtaking)
    world, leader, followers = scripted(3, seed=1)
    for each in leader.links._links.values():
        each._long_share = 1
    return world, leader, followers


def no_overtaking(one: link.Link) -> link.LinkCapacity:
    return link.LinkCapacity.NOTHING if one._long else link.LinkCapacity.ANYTHING


def roles(world):
    return {member.driver.core.term for member in world.members.values()}


def test_a_long_frame_costs_no_election_and_is_committed(slow):
    world, leader, _ = slow
    terms = roles(world)
    (proposal,) = world.propose(leader, 1)
    world.elapse(1000 * SECONDS // 2)
    assert not proposal.done()
    assert all(each._long for each in leader.links._links.values())
    assert roles(world) == terms
    world.until_done([proposal])
    assert proposal.error is None
    assert roles(world) == terms
    assert world.counts["activity of a leader"] > 100
    assert world.counts["activity of a follower"] > 100


@pytest.mark.parametrize("kind", ["leader", "follower"])
def test_without_activity_a_long_frame_costs_an_election(slow, monkeypatch, kind):
    """This shows that the test above depends on the notices of activity."""
    world, leader, followers = slow
    for member in [leader, *followers]:
        monkeypatch.setattr(member.driver, f"{kind}_alive", lambda *_: None)
    terms = roles(world)
    world.propose(leader, 1)
    world.elapse(1000 * SECONDS)
    assert max(roles(world)) > max(terms)


def test_a_leader_that_steps_down_sends_no_more_signs_of_life(slow):
    """Further bytes of a long frame would prevent the election of another leader."""
    world, leader, followers = slow
    world.propose(leader, 1)
    world.elapse(300)
    for follower in followers:
        world.network.cut.add((follower.id, leader.id))
    world.elapse(1000 * SECONDS // 2)
    assert leader.driver.core.leader != leader.id
    assert not any(each._long for each in leader.links._links.values())
    assert any(follower.serves for follower in followers)
