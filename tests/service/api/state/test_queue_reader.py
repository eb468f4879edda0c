"""Bounded-staleness reads: the state is never older than the caller's bound."""

import asyncio

import pytest

from taskraft_replication.errors import ReadUnconfirmed
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.state.queue_reader import StalenessGuard


class Surroundings:
    """A clock that the test advances, and a majority that confirms reads or not."""

    def __init__(self):
        self.now_ms = 1_000
        self.silence_ms = 0
        self.confirms = True
        self.takes_ms = 0
        self.asked = 0
        self.freshness = StalenessGuard(self.confirm, lambda: self.silence_ms, lambda: self.now_ms)

    async def confirm(self):
        self.asked += 1
        self.now_ms += self.takes_ms
        if not self.confirms:
            raise ReadUnconfirmed("nobody answers")

    async def reads_within(self, limit_ms):
        try:
            await self.freshness.check_staleness(limit_ms)
        except CallRefused:
            return False
        return True


async def test_a_bounded_read_is_confirmed_unless_a_recent_confirmation_exists():
    here = Surroundings()
    assert await here.reads_within(100)
    assert here.asked == 1
    here.now_ms += 100
    assert await here.reads_within(100)
    assert here.asked == 1
    here.now_ms += 1
    assert await here.reads_within(100)
    assert here.asked == 2


async def test_a_linearizable_read_serves_later_bounded_reads():
    here = Surroundings()
    await here.freshness.barrier()
    here.now_ms += 50
    assert await here.reads_within(50)
    assert here.asked == 1


async def test_the_age_counts_from_the_request_of_the_confirmation():
    here = Surroundings()
    here.takes_ms = 80
    await here.freshness.barrier()
    here.now_ms += 30
    assert await here.reads_within(100)
    assert here.asked == 2, "a request from 110 ms ago does not confirm the last 100 ms"


async def test_a_late_confirmation_does_not_replace_a_younger_one():
    here = Surroundings()
    gates = [asyncio.Event(), asyncio.Event()]

    async def confirm():
        here.asked += 1
        await gates[here.asked - 1].wait()

    freshness = StalenessGuard(confirm, lambda: 0, lambda: here.now_ms)
    first = asyncio.ensure_future(freshness.barrier())
    await asyncio.sleep(0)
    here.now_ms += 100
    second = asyncio.ensure_future(freshness.barrier())
    await asyncio.sleep(0)
    gates[1].set()
    await second
    gates[0].set()
    await first
    await freshness.check_staleness(10)
    assert here.asked == 2


async def test_an_unconfirmed_read_is_refused():
    here = Surroundings()
    await here.freshness.barrier()
    here.confirms = False
    here.now_ms += 100
    assert await here.reads_within(100)
    assert not await here.reads_within(99)
    assert here.asked == 2


async def test_without_a_leader_no_confirmation_is_requested():
    here = Surroundings()
    here.silence_ms = 101
    with pytest.raises(CallRefused, match="no leader known for 101 ms"):
        await here.freshness.check_staleness(100)
    assert here.asked == 0
