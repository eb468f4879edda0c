"""Commands that wait for an entry, and what counts towards their limits."""

import asyncio

import pytest

from taskraft_service.leader.command_submitter import LeaderOverloaded, NotProposed
from taskraft_service.leader.pending import PendingCommands
from tests.service.leader.test_proposer import LIMITS, command


@pytest.fixture
async def pending():
    return PendingCommands(LIMITS, asyncio.get_running_loop())


async def test_dropped_commands_do_not_count_towards_the_limit(pending):
    lost = pending.add(command("x" * 1_900), None)
    pending.drop_all("leadership was lost")
    with pytest.raises(NotProposed, match="leadership was lost"):
        await lost
    assert len(pending) == 0
    assert pending.dropped == 1
    assert not pending.fills_an_entry
    pending.add(command("x" * 1_900), None)


async def test_proposed_commands_do_not_count_towards_the_limit(pending):
    for _ in range(3):
        pending.add(command("x" * 1_900), None)
        assert pending.fills_an_entry
        (one,) = pending.gather()
        one.future.cancel()
        assert not pending.fills_an_entry


async def test_cancelled_commands_do_not_count_towards_the_limit(pending):
    late = pending.add(command("x" * 1_900), asyncio.get_running_loop().time() - 1)
    assert pending.gather() == []
    with pytest.raises(NotProposed, match="the deadline passed"):
        await late
    pending.add(command("x" * 1_900), None)
    with pytest.raises(LeaderOverloaded):
        pending.add(command("x" * 1_900), None)
