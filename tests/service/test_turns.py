"""Long work of many calls takes turns, so that one iteration of the event loop stays short."""

import asyncio

import pytest

from taskraft_service import turns
from taskraft_service.turns import ITERATION_SECONDS, TURNS_MAX, Turns, next_turn, turn_owner


class Work:
    """Slices of calls, which alone advance the time of the turns."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.ran = []
        self.turns = Turns(lambda: self.now)
        monkeypatch.setattr(turns, "_TURNS", self)

    def get(self, _loop):
        return self.turns

    async def call(self, name, *seconds):
        for one in seconds:
            await next_turn()
            self.now += one
            self.ran.append(name)

    async def iterations(self, *calls):
        """Run calls; return how many slices each iteration of the event loop ran."""
        working = [asyncio.ensure_future(call) for call in calls]
        counts = []
        while not all(one.done() for one in working):
            before = len(self.ran)
            await asyncio.sleep(0)
            counts.append(len(self.ran) - before)
        return counts


@pytest.fixture
def work(monkeypatch):
    return Work(monkeypatch)


LONG = 2 * ITERATION_SECONDS


async def test_an_iteration_runs_one_long_slice_however_many_calls_there_are(work):
    counts = await work.iterations(*[work.call(name, LONG, LONG, LONG) for name in range(50)])
    assert sum(counts) == 150
    assert max(counts[5:]) == 1, "the first iterations follow short ones"
    assert sum(counts[:5]) < 10


async def test_an_iteration_runs_several_short_slices(work):
    counts = await work.iterations(*[work.call(name, 0.0) for name in range(100)])
    assert max(counts) == TURNS_MAX
    assert len(counts) < 100 // TURNS_MAX + 10


async def test_a_long_slice_ends_the_iterations_with_several_turns(work):
    short = [work.call("short", 0.0) for _ in range(40)]
    await work.iterations(*short, *[work.call("long", LONG) for _ in range(100)])
    counts = await work.iterations(*[work.call("long", LONG) for _ in range(20)])
    assert max(counts) == 1


async def test_calls_take_turns_in_the_order_in_which_they_ask(work):
    calls = [work.call("a", LONG, LONG, LONG), work.call("b", LONG), work.call("c", LONG, LONG)]
    await work.iterations(*calls)
    assert work.ran == ["a", "b", "c", "a", "c", "a"]


async def test_owners_come_one_after_another(work):
    async def of(owner, *names):
        turn_owner.set(owner)
        await asyncio.gather(*[work.call(name, LONG) for name in names])

    await work.iterations(of("a", 1, 2, 3, 4), of("b", 5), of("c", 6, 7))
    assert work.ran == [1, 5, 6, 2, 7, 3, 4]


async def test_a_cancelled_call_passes_its_turn_on(work):
    waiting = [asyncio.ensure_future(work.call(name, LONG)) for name in range(40)]
    await asyncio.sleep(0)
    for one in waiting[:-1]:
        one.cancel()
    await waiting[-1]
    await next_turn()
    assert work.ran == [39]
