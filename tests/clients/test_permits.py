"""Permits are handed out in FIFO order, and none is lost."""

import asyncio

from taskraft._permits import Permits


async def waiting(permits, names, order):
    """Start coroutines that wait for a permit, and return their asyncio tasks by name."""

    async def acquire(name):
        await permits.acquire()
        order.append(name)

    started = {name: asyncio.create_task(acquire(name)) for name in names}
    await asyncio.sleep(0)
    return started


async def test_the_number_of_permits_is_limited():
    order = []
    permits = Permits(2)
    await waiting(permits, "abc", order)
    assert order == ["a", "b"]
    assert not permits.has_free


async def test_waiters_get_permits_in_order_before_later_callers():
    order = []
    permits = Permits(1)
    await waiting(permits, "abc", order)
    permits.release()
    await waiting(permits, "d", order)
    assert order == ["a", "b"]
    permits.release()
    permits.release()
    await asyncio.sleep(0)
    assert order == ["a", "b", "c", "d"]
    permits.release()
    assert permits.has_free


async def test_a_cancelled_waiter_gets_no_permit():
    order = []
    permits = Permits(1)
    started = await waiting(permits, "abc", order)
    started["b"].cancel()
    await asyncio.sleep(0)
    permits.release()
    await asyncio.sleep(0)
    assert order == ["a", "c"]


async def test_a_permit_that_arrives_with_a_cancellation_goes_to_the_next_waiter():
    order = []
    permits = Permits(1)
    started = await waiting(permits, "abc", order)
    permits.release()
    started["b"].cancel()
    await asyncio.gather(started["b"], return_exceptions=True)
    await asyncio.sleep(0)
    assert order == ["a", "c"]
    permits.release()
    assert permits.has_free
