"""Periodic commands of a leader, and their failures."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft_service.leader import housekeeping as module
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.housekeeping import Housekeeping
from taskraft_service.leader.unlogged_calls import TUBES_PER_COMMAND_MAX, UnloggedCalls
from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.feed import TrimFeed
from taskraft_service.queue.operations.leadership import NoteCalls

DONE = AppliedCommand(1, 1, 0, CountResult(0))


class Feed:
    def __init__(self):
        self.due = {}

    def retention_due(self, *limits):
        self.limits = limits
        return self.due


class Machine:
    def __init__(self):
        self.queue = SimpleNamespace(
            now_ms=7, wall_offset_ms=500, feed=Feed(), held_back=lambda: {0: 3}
        )


class Settings:
    feed_retention_ms = 1_000
    feed_bytes_max = 2_000


class Bench:
    def __init__(self):
        self.unlogged_calls = UnloggedCalls(lambda: True)
        self.outcome = DONE
        self.proposed = []
        self.machine = Machine()
        self.keeping = Housekeeping(
            self, self.machine, self.unlogged_calls, Settings(), self, self.end_leadership
        )

    def is_nearly_used_up(self):
        return False

    async def end_leadership(self):
        raise AssertionError("the numbers of the term are not used up")

    def submit(self, recorded, deadline=None):
        if isinstance(self.outcome, LeaderOverloaded):
            raise self.outcome
        self.proposed.append(recorded.command)
        future = asyncio.get_running_loop().create_future()
        if self.outcome is None:
            return future
        if isinstance(self.outcome, Exception):
            future.set_exception(self.outcome)
        else:
            future.set_result(self.outcome)
        return future

    def note(self, tubes=1):
        for number in range(tubes):
            self.unlogged_calls.count_peeks(f"t{number}", 2, payload_omit=False)


@pytest.fixture
async def bench():
    return Bench()


async def test_calls_are_logged_once(bench):
    assert not await bench.keeping.log_calls()
    bench.note()
    assert await bench.keeping.log_calls()
    assert not await bench.keeping.log_calls()
    (command,) = bench.proposed
    assert isinstance(command, NoteCalls)
    assert [one.peeks for one in command.tubes] == [2]


@pytest.mark.parametrize("error", [NotProposed("x"), LeaderOverloaded("x")])
async def test_counts_that_were_not_proposed_are_logged_at_the_next_interval(bench, error):
    bench.note()
    bench.outcome = error
    assert not await bench.keeping.log_calls()
    bench.outcome = DONE
    assert await bench.keeping.log_calls()
    assert [one.peeks for one in bench.proposed[-1].tubes] == [2]


async def test_counts_with_unknown_outcome_are_not_logged_again(bench):
    bench.note()
    bench.outcome = OutcomeUnknown("x")
    assert await bench.keeping.log_calls()
    assert not await bench.keeping.log_calls()


async def test_a_cancelled_command_counts_as_logged(bench):
    bench.note()
    bench.outcome = None
    telling = asyncio.ensure_future(bench.keeping.log_calls())
    await asyncio.sleep(0)
    telling.cancel()
    await asyncio.wait((telling,))
    bench.outcome = DONE
    assert not await bench.keeping.log_calls()


async def test_all_counts_are_logged_before_a_transfer(bench):
    bench.note(TUBES_PER_COMMAND_MAX + 1)
    await bench.keeping.before_transfer()
    assert [len(command.tubes) for command in bench.proposed] == [TUBES_PER_COMMAND_MAX, 1]


@pytest.mark.real_time
async def test_logging_counts_delays_a_transfer_only_briefly(bench, monkeypatch):
    monkeypatch.setattr(module, "TRANSFER_DELAY_MS_MAX", 1)
    bench.note()
    bench.outcome = None
    await bench.keeping.before_transfer()
    assert len(bench.proposed) == 1


async def test_a_transfer_proceeds_if_counts_cannot_be_logged(bench):
    bench.note()
    bench.outcome = NotProposed("x")
    await bench.keeping.before_transfer()
    assert len(bench.proposed) == 1


async def test_old_events_are_trimmed_and_nothing_is_proposed_without_any(bench):
    await bench.keeping.trim_feed()
    assert not bench.proposed
    feed = bench.machine.queue.feed
    assert feed.limits == (507, 1_000, 2_000, {0: 3})
    feed.due = {0: 5}
    try:
        await bench.keeping.trim_feed()
    finally:
        del feed.due
    (command,) = bench.proposed
    assert isinstance(command, TrimFeed)
