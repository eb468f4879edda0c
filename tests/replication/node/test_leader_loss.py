"""A follower campaigns some time after the stream from the leader has ended."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft_replication.core.types import NO_MEMBER, MemberId
from taskraft_replication.node.leader_loss import LeaderLossCampaign
from tests.replication.node.clock import Clock

LEADER = MemberId(2)


class Member:
    """Replaces a driver that follows member 2."""

    def __init__(self) -> None:
        self.core = SimpleNamespace(leader=LEADER)
        self.is_running = True
        self.campaigns = 0

    def forget_leader(self, member: MemberId) -> bool:
        if member != self.core.leader:
            return False
        self.core.leader = NO_MEMBER
        return True

    def campaign(self) -> None:
        self.campaigns += 1


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


@pytest.mark.parametrize(("drawn", "waited_ms"), [(0, 100), (0.5, 200), (1, 300)])
def test_a_follower_campaigns_after_a_random_wait_when_the_leaders_stream_ends(
    clock, drawn, waited_ms
):
    member = Member()
    LeaderLossCampaign(member, 50, lambda: drawn, lambda: True).stream_ended(LEADER)
    clock.advance(waited_ms - 1)
    assert member.campaigns == 0
    clock.advance(1)
    assert member.campaigns == 1
    clock.advance(1000)
    assert member.campaigns == 1


def test_the_end_of_another_members_stream_causes_no_campaign(clock):
    member = Member()
    LeaderLossCampaign(member, 50, lambda: 0, lambda: True).stream_ended(MemberId(3))
    clock.advance(1000)
    assert member.campaigns == 0
    assert member.core.leader == LEADER


def test_a_leader_that_returns_during_the_wait_stays(clock):
    member = Member()
    LeaderLossCampaign(member, 50, lambda: 0, lambda: True).stream_ended(LEADER)
    clock.advance(99)
    member.core.leader = LEADER
    clock.advance(1000)
    assert member.campaigns == 0


def test_a_stopped_member_does_not_campaign(clock):
    member = Member()
    LeaderLossCampaign(member, 50, lambda: 0, lambda: member.is_running).stream_ended(LEADER)
    member.is_running = False
    clock.advance(1000)
    assert member.campaigns == 0
