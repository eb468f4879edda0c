"""Long work of many calls takes turns, so that one iteration of the event loop stays short."""

import asyncio

from taskraft_service.turns import next_turn


async def slices_between_ticks(*calls):
    """Run calls, and return how many slices each iteration of the event loop ran."""
    ran, counts = [], []

    async def tick():
        while True:
            before = len(ran)
            await asyncio.sleep(0)
            counts.append(len(ran) - before)

    ticking = asyncio.ensure_future(tick())
    await asyncio.gather(*[call(ran) for call in calls])
    ticking.cancel()
    return ran, counts


def call_of(name, slices):
    async def call(ran):
        for _ in range(slices):
            await next_turn()
            ran.append(name)

    return call


async def test_an_iteration_runs_one_slice_however_many_calls_there_are():
    ran, counts = await slices_between_ticks(*[call_of(name, 3) for name in range(50)])
    assert len(ran) == 150
    assert max(counts) == 1


async def test_calls_take_turns_in_the_order_in_which_they_ask():
    ran, _ = await slices_between_ticks(call_of("a", 3), call_of("b", 1), call_of("c", 2))
    assert ran == ["a", "b", "c", "a", "c", "a"]


async def test_a_cancelled_call_passes_its_turn_on():
    waiting = [asyncio.ensure_future(next_turn()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await waiting[2]
    await next_turn()
    assert [one.cancelled() for one in waiting] == [True, True, False]
