"""A leader that waits for a next entry before it applies, and holds the news of a commit back."""

import pytest

from tests.sim.member import Member
from tests.sim.seeds import run_seed

STEPS = 800
GROUP = 10


@pytest.fixture
def expecting(monkeypatch):
    """Let each leader expect a next entry at a third of its commits; often none follows."""
    asked = []
    start = Member.start

    def expects(member):
        asked.append(member.id)
        return member.world.schedule.now_us % 3 == 0

    def start_expecting(member):
        start(member)
        if member.is_running:
            member.driver.before_applying = lambda: expects(member)

    monkeypatch.setattr(Member, "start", start_expecting)
    return asked


@pytest.mark.parametrize("first", range(0, 60, GROUP))
def test_no_rule_breaks_and_the_group_recovers(expecting, first):
    runs = [run_seed(seed, STEPS) for seed in range(first, first + GROUP)]
    assert not [run.failure for run in runs if run.failure]
    assert len(set(expecting)) > 1
