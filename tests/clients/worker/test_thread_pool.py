"""The threads of a worker."""

import asyncio
import threading
from contextvars import ContextVar, copy_context

import pytest

from taskraft.worker import HandlerError
from taskraft.worker.thread_pool import ThreadPool

TIMEOUT = 30


@pytest.fixture
async def pool():
    one = ThreadPool(3)
    yield one
    one.close()


def start(pool, function):
    return pool.start(function, copy_context())


async def test_a_call_gets_its_context_and_hands_back_its_value(pool):
    colour = ContextVar("colour", default="none")
    colour.set("red")
    assert await start(pool, colour.get).future == "red"


async def test_an_exception_is_raised_where_the_call_is_awaited(pool):
    with pytest.raises(ZeroDivisionError):
        await start(pool, lambda: 1 // 0).future


async def test_a_handler_may_raise_stop_iteration(pool):
    with pytest.raises(HandlerError, match="StopIteration"):
        await start(pool, lambda: next(iter(()))).future
    assert await start(pool, lambda: 7).future == 7


async def test_blocked_calls_run_side_by_side_up_to_the_number_of_threads(pool):
    all_run = threading.Barrier(4)
    calls = [start(pool, lambda: all_run.wait(TIMEOUT)) for _ in range(3)]
    queued = start(pool, lambda: "queued")
    await asyncio.to_thread(all_run.wait, TIMEOUT)
    await asyncio.gather(*(call.future for call in calls))
    assert await queued.future == "queued"


async def test_a_thread_goes_on_when_its_waiter_is_cancelled(pool):
    released, ended = threading.Event(), asyncio.Event()
    call = start(pool, lambda: released.wait(TIMEOUT))
    call.on_done.append(ended.set)
    call.future.cancel()
    await asyncio.sleep(0)
    assert not call.is_done
    released.set()
    await asyncio.wait_for(ended.wait(), TIMEOUT)
    assert call.is_done


async def test_idle_threads_are_used_again(pool):
    names = {await start(pool, lambda: threading.current_thread().name).future for _ in range(20)}
    assert len(names) == 1


async def test_threads_end_after_a_close():
    pool = ThreadPool(2)
    thread = await start(pool, threading.current_thread).future
    pool.close()
    await asyncio.to_thread(thread.join, TIMEOUT)
    assert not thread.is_alive()


def test_a_call_that_outlives_the_event_loop_ends_its_thread():
    released = threading.Event()

    async def leave():
        pool = ThreadPool(1)
        running = start(pool, threading.current_thread)
        thread = await running.future
        start(pool, lambda: released.wait(TIMEOUT))
        return thread

    thread = asyncio.run(leave())
    released.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
