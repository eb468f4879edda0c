"""The proposer builds the next entry when the last one is committed, before it is applied."""

import pytest

from tests.service.leader.test_proposer import LIMITS, Bench, command, turn


@pytest.fixture
async def bench():
    one = Bench()
    await one.lead()
    yield one
    one.proposer.stop()


async def test_the_next_entry_follows_a_committed_one_that_is_not_applied(bench):
    bench.proposer.submit(command("a"))
    await turn()
    bench.proposer.submit(command("b"))
    await turn()
    assert len(bench.raft.entries) == 2
    bench.raft.is_committed = True
    assert bench.proposer.committed()
    await turn()
    assert bench.names(2) == ["b"]
    assert bench.raft.flushed == 3
    bench.raft.apply(1)
    await turn()
    assert len(bench.raft.entries) == 3


async def test_without_pending_commands_applying_does_not_wait(bench):
    bench.proposer.submit(command("a"))
    await turn()
    bench.raft.is_committed = True
    assert not bench.proposer.committed()


async def test_committed_entries_that_are_not_applied_are_bounded(bench):
    for name in "abcde":
        bench.proposer.submit(command(name))
        bench.raft.is_committed = True
        bench.proposer.committed()
        await turn()
    assert len(bench.raft.entries) == 1 + LIMITS.entries_in_flight
    assert not bench.proposer.committed()
