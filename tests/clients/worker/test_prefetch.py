"""A pool receives tasks before a slot is free, as long as its handlers are short."""

import asyncio

import pytest

from taskraft.worker.prefetch import PREFETCH_MAX, Prefetch
from tests.clients.worker import handlers
from tests.clients.worker.handlers import events, pass_virtual, running
from tests.turns import turns_until

WAIT = "30s"
SHORT_HANDLERS = 100
"""Number of handlers without duration after which a pool has its whole prefetch."""


def prefetch_after(slots, *seconds):
    found = Prefetch(slots)
    for one in seconds:
        found.ended(one)
    return found.tasks


@pytest.mark.parametrize(
    ("slots", "seconds", "tasks"),
    [
        (8, [], 0),
        (8, [0.0] * 30, 0),
        (8, [0.0] * 500, PREFETCH_MAX),
        (8, [0.009] * 500, 16),  # 8 slots begin 17 handlers in 0.02 s
        (8, [0.09] * 500, 1),
        (8, [0.2] * 500, 0),
        (100, [0.19] * 500, 8),
        (8, [0.0] * 500 + [60.0], 0),
    ],
)
def test_the_prefetch_follows_from_the_duration_of_handlers(slots, seconds, tasks):
    assert prefetch_after(slots, *seconds) == tasks


def test_the_prefetch_begins_again_after_a_long_wait():
    found = Prefetch(8)
    for _ in range(500):
        found.ended(0.0)
    found.stop()
    assert found.tasks == 0
    found.ended(0.0)
    assert found.tasks == 0


async def after_short_handlers(app, short, hang):
    """Run short handlers, then one that hangs in the only slot; put four more tasks behind it."""
    for handle in await app.aput_many([short.plan("short")] * SHORT_HANDLERS):
        await handle.aresult(WAIT)
    return await app.aput_many([hang.plan()] * 5)


async def states(handles):
    return [(status.state, status.attempt) for status in [await one.astatus() for one in handles]]


async def are_in(handles, wanted):
    async with asyncio.timeout(30):
        while await states(handles) != wanted:  # noqa: ASYNC110 - a state of the cluster
            await asyncio.sleep(0)


async def test_without_short_handlers_no_task_is_leased_before_a_slot_is_free(app):
    hang = app.task(handlers.hang)
    async with running(app, async_slots=1, grace=0):
        handles = await app.aput_many([hang.plan()] * 3)
        await handlers.begun.wait()
        assert await states(handles) == [("TAKEN", 1), ("READY", 0), ("READY", 0)]


async def test_a_prefetched_task_that_waits_too_long_is_handed_back_uncounted(app, ataskraft):
    short, hang = app.task(handlers.note), app.task(handlers.hang)
    async with running(app, async_slots=1, grace=0):
        handles = await after_short_handlers(app, short, hang)
        await turns_until(lambda: "begun" in events)
        await are_in(handles, [("TAKEN", 1)] * 5)
        await pass_virtual(0.9)
        assert await states(handles) == [("TAKEN", 1)] * 5
        await pass_virtual(0.2)
        await are_in(handles, [("TAKEN", 1)] + [("READY", 0)] * 4)
        await pass_virtual(60)
        assert await states(handles) == [("TAKEN", 1)] + [("READY", 0)] * 4
        assert events.count("begun") == 1


async def test_a_drain_hands_prefetched_tasks_back_at_once(app):
    short, hang = app.task(handlers.note), app.task(handlers.hang)
    async with running(app, async_slots=1, grace="10s", cancel_grace=0) as worker:
        handles = await after_short_handlers(app, short, hang)
        await are_in(handles, [("TAKEN", 1)] * 5)
        app.stop()
        await are_in(handles, [("TAKEN", 1)] + [("READY", 0)] * 4)
        assert not worker.done()


async def note_or_hang(word: str) -> str:
    events.append(word)
    if word == "hang":
        await asyncio.Event().wait()
    return word


async def test_a_task_with_a_concurrency_has_no_prefetch(app):
    task = app.task(concurrency=1)(note_or_hang)
    async with running(app, async_slots=1, grace=0):
        for handle in await app.aput_many([task.plan("short")] * SHORT_HANDLERS):
            await handle.aresult(WAIT)
        handles = await app.aput_many([task.plan("hang")] * 5)
        await turns_until(lambda: "hang" in events)
        assert await states(handles) == [("TAKEN", 1)] + [("READY", 0)] * 4
