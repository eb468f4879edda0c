"""Many deadlines share one timer."""

import asyncio

import pytest

from taskraft._deadlines import UNUSED_MIN, Deadlines
from taskraft.testing._virtual_time import VirtualTime


@pytest.fixture
async def clock():
    """Return a virtual clock of the running loop."""
    time = VirtualTime(asyncio.get_running_loop())
    time.install()
    yield time
    time.uninstall()


@pytest.fixture
def announced():
    """Return the times at which deadlines were announced, by waiter."""
    return []


@pytest.fixture
def deadlines(clock, announced):
    """Return deadlines that record what they announce."""
    return Deadlines(lambda waiter: announced.append((waiter, clock.time())))


def timers():
    loop = asyncio.get_running_loop()
    return [timer for timer in loop._scheduled if not timer.cancelled()]


async def test_each_deadline_is_announced_once_at_its_time(clock, deadlines, announced):
    start = clock.time()
    for seconds in (5, 1, 3, 1):
        deadlines.add((seconds, object()), start + seconds)
    assert len(timers()) == 1
    await clock.run_until(start + 10)
    assert [(waiter[0], at - start) for waiter, at in announced] == [(1, 1), (1, 1), (3, 3), (5, 5)]


async def test_a_discarded_deadline_is_not_announced(clock, deadlines, announced):
    start = clock.time()
    for name in "abc":
        deadlines.add(name, start + 1)
    deadlines.discard("b")
    deadlines.discard("b")
    await clock.run_until(start + 2)
    assert [waiter for waiter, _ in announced] == ["a", "c"]


async def test_a_deadline_that_moves_is_announced_at_its_last_time(clock, deadlines, announced):
    start = clock.time()
    deadlines.add("later", start + 1)
    deadlines.add("later", start + 4)
    deadlines.add("earlier", start + 4)
    deadlines.add("earlier", start + 2)
    await clock.run_until(start + 10)
    assert announced == [("earlier", start + 2), ("later", start + 4)]


async def test_without_waiters_there_is_no_timer(clock, deadlines, announced):
    deadlines.add("a", clock.time() + 1)
    deadlines.discard("a")
    await asyncio.sleep(0)
    assert not timers()
    deadlines.add("b", clock.time() + 2)
    await clock.run_until(clock.time() + 3)
    assert [waiter for waiter, _ in announced] == ["b"]
    assert not timers()


async def test_a_deadline_may_be_added_while_another_is_announced(clock):
    announced = []
    start = clock.time()

    def passed(name):
        announced.append((name, clock.time() - start))
        if name < 3:
            deadlines.add(name + 1, start + name + 1)

    deadlines = Deadlines(passed)
    deadlines.add(1, start + 1)
    await clock.run_until(start + 10)
    assert announced == [(1, 1), (2, 2), (3, 3)]


async def test_discarded_deadlines_leave_the_memory(clock, deadlines):
    start = clock.time()
    deadlines.add("last", start + 1)
    for number in range(10 * UNUSED_MIN):
        deadlines.add(number, start + 2)
        deadlines.discard(number)
    assert len(deadlines._heap) <= UNUSED_MIN + 2
