"""Waits for events of a change feed with several partitions."""

import asyncio
from types import SimpleNamespace

import pytest

from taskraft_service.machine.feed_waits import WOKEN_AT_ONCE, FeedWaits
from tests.turns import turns_until

PATIENCE = 60.0


class Stage:
    def __init__(self, *highs):
        self.partitions = [SimpleNamespace(high_seq=high) for high in highs]
        self.waits = FeedWaits(self.feed)
        self.looks = 0
        """How often the feed was looked at, by a slice of wake-ups or by a reader that woke."""

    def feed(self):
        self.looks += 1
        return self

    async def begin(self, wait):
        task = asyncio.ensure_future(wait)
        await asyncio.sleep(0)
        return task

    async def append(self, partition):
        """Append an event, and let the event loop run until no wait is checked any more."""
        self.partitions[partition].high_seq += 1
        self.waits.applied(0)
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_wait_for_any_partition_ends_with_the_first_event_that_is_news():
    stage = Stage(5, 3)
    wait = await stage.begin(stage.waits.wait_for_any([6, 5], PATIENCE))
    for partition in (1, 0, 1):
        looks = stage.looks
        await stage.append(partition)
        assert not wait.done()
        assert stage.looks == looks + 1, "the reader sleeps on"
    await stage.append(0)
    assert await wait
    assert not stage.waits.waiting


@pytest.mark.parametrize("partition", [0, 1])
async def test_each_partition_ends_a_wait_for_any(partition):
    stage = Stage(5, 3)
    wait = await stage.begin(stage.waits.wait_for_any([5, 3], PATIENCE))
    await stage.append(partition)
    assert await wait


async def test_a_wait_for_one_partition_ends_with_its_event():
    stage = Stage(5, 3)
    waits = [await stage.begin(stage.waits.wait_for(1, seq, PATIENCE)) for seq in (5, 3, 4)]
    await stage.append(0)
    for ended in (set(), {1}, {1, 2}, {0, 1, 2}):
        assert {place for place, wait in enumerate(waits) if wait.done()} == ended
        await stage.append(1)
    assert not stage.waits.waiting


async def test_readers_that_are_only_checked_do_not_delay_a_reader_with_news_for_ever():
    stage = Stage(0, 0)
    checked = [
        await stage.begin(stage.waits.wait_for_any([0, 1_000], PATIENCE))
        for _ in range(5 * WOKEN_AT_ONCE)
    ]
    reader = await stage.begin(stage.waits.wait_for(1, 5, PATIENCE))

    def is_read():
        stage.partitions[1].high_seq += 1
        stage.waits.applied(0)
        return reader.done() or stage.partitions[1].high_seq == 500

    await turns_until(is_read)
    assert reader.done()
    assert not any(wait.done() for wait in checked)
    await stage.append(0)
    assert await asyncio.gather(*checked) == [True] * len(checked)


async def test_a_wait_ends_when_the_feed_begins():
    stage = Stage()
    wait = await stage.begin(stage.waits.wait_for_any([], PATIENCE))
    stage.partitions.append(SimpleNamespace(high_seq=0))
    await stage.append(0)
    assert await wait


async def test_a_wait_without_patience_and_one_on_a_stopping_node_end_at_once():
    stage = Stage(0)
    assert not await stage.waits.wait_for(0, 0, 0.0)
    wait = await stage.begin(stage.waits.wait_for(0, 0, PATIENCE))
    stage.waits.end()
    assert not await wait
    assert not await stage.waits.wait_for(0, 0, PATIENCE)
    assert not stage.waits.waiting
