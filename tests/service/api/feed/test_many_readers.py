"""Many readers that wait for the change feed: an entry costs only those with news, in slices."""

import asyncio

import pytest

from taskraft.v1 import error_pb2
from taskraft_service import limits
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.machine.feed_waits import WOKEN_AT_ONCE
from tests.service.api.feed.test_feed import Bench, turn, watch
from tests.service.counted_calls import calls_of_turns

READERS = 350
FAR = 1 << 40


async def ended_in_turns(tasks):
    """Return how many tasks end in each turn of the event loop, until all have ended."""
    ended = [sum(task.done() for task in tasks)]
    while sum(ended) < len(tasks):
        await asyncio.sleep(0)
        ended.append(sum(task.done() for task in tasks) - sum(ended))
    return ended


async def end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def calls_of_a_put(readers):
    """Return the calls of the turns after a put, with readers that wait for later events."""
    bench = Bench()
    far = {"from_seq": FAR, "to_seq": FAR + 1, "wait_ms": limits.WAIT_MAX_MS}
    waiting = [bench.begin(**far) for _ in range(readers)]
    waiting += [watch(bench, FAR, wait_ms=limits.WAIT_MAX_MS) for _ in range(readers)]
    await turn()
    bench.put(1)
    calls = await calls_of_turns(5)
    await end(waiting)
    assert not bench.waits.waiting
    return calls


async def test_an_entry_costs_nothing_for_readers_without_news():
    assert await calls_of_a_put(READERS) <= await calls_of_a_put(1) + 20


async def test_readers_with_news_are_woken_in_slices():
    bench = Bench()
    watching = [watch(bench, 0, wait_ms=limits.WAIT_MAX_MS) for _ in range(READERS)]
    await turn()
    bench.put(1)
    assert max(await ended_in_turns(watching)) <= WOKEN_AT_ONCE
    assert {view.high_seq for task in watching for view in task.result().partitions} == {1}


async def test_a_node_that_stops_ends_its_readers_in_slices():
    bench = Bench()
    reading = [bench.begin() for _ in range(READERS)]
    await turn()
    bench.waits.end()
    assert max(await ended_in_turns(reading)) <= WOKEN_AT_ONCE
    reasons = set()
    for task in reading:
        with pytest.raises(CallRefused) as refused:
            await task
        reasons.add(refused.value.reason)
    assert reasons == {error_pb2.Error.DRAINING}
