"""The virtual clock of an event loop."""

import asyncio
import time

import pytest

from taskraft.testing._virtual_time import VirtualTime
from taskraft.testing.errors import ClockStuck


@pytest.fixture
def clock():
    loop = asyncio.SelectorEventLoop()
    one = VirtualTime(loop)
    one.install()
    yield one
    loop.close()


def run(clock, coroutine):
    return clock.loop.run_until_complete(coroutine)


async def fired_after(seconds):
    fired = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, fired.set)
    await fired.wait()


def test_the_clock_stays_at_whole_milliseconds(clock):
    began = clock.time()
    run(clock, fired_after(0.0004))
    assert clock.time() == began + 0.001


def test_a_timer_just_behind_a_whole_millisecond_fires(clock):
    began = clock.time()
    clock.limit_real_time()
    run(clock, fired_after(0.001 + 9e-8))
    assert began + 0.001 < clock.time() < began + 0.0011


def test_the_clock_stands_still_while_a_thread_works(clock):
    async def beside_a_timer():
        late = asyncio.create_task(fired_after(60))
        await asyncio.to_thread(time.monotonic)
        is_late = late.done()
        late.cancel()
        return is_late

    assert not run(clock, beside_a_timer())


def test_a_wait_without_a_timer_fails_at_once(clock):
    with pytest.raises(ClockStuck, match="no timer is set"):
        run(clock, asyncio.Event().wait())


def test_the_loop_has_its_own_clock_afterwards(clock):
    run(clock, fired_after(3_600))
    clock.uninstall()
    assert abs(clock.loop.time() - time.monotonic()) < 60


def test_only_loops_of_asyncio_can_be_used():
    with pytest.raises(RuntimeError, match="needs an asyncio"):
        VirtualTime(object())
