"""The block of a task: lease renewal, and cancellation when the lease is lost."""

# ruff: noqa: PT012 - the loop waits for the server inside the block that must raise.

import asyncio
import contextlib
import sys
import threading
import time

import pytest

from taskraft import AsyncClient, errors
from taskraft.v1 import task_pb2
from tests.turns import blocked_until, turns_until

pytestmark = pytest.mark.real_time

DONE = task_pb2.Task.DONE
READY = task_pb2.Task.READY
TTR = "3s"
WITHIN_TTR = "2s"
"""A time in which a lease is renewed, and is not over without a renewal."""
DAY_SECONDS = 86_400


def touched(cluster):
    """Return the leases of each touch that the server has received."""
    return [
        list(settlement.tokens)
        for request in cluster.requests("SettleTasks")
        for settlement in request.settlements
        if settlement.HasField("touch")
    ]


async def states(client):
    """Return the states of all tasks."""
    return [task.message.state async for task in client.tube("emails").list()]


def test_a_handler_that_takes_longer_than_the_ttr_keeps_its_task(cluster, blocking_client):
    emails = blocking_client.tube("emails")
    emails.put("a", ttr=TTR)
    with emails.take(wait=0) as task:
        blocked_until(lambda: len(touched(cluster)) >= 2)
    seen = touched(cluster)
    assert all(tokens == [1] for tokens in seen)
    assert cluster.states() == [DONE]
    assert not task.is_lost


async def test_a_handler_that_blocks_the_event_loop_keeps_its_task_too(cluster, client):
    await client.tube("emails").put("a", ttr=TTR)
    async with await client.tube("emails").take(wait=0):
        blocked_until(lambda: len(touched(cluster)) >= 2)
    assert cluster.states() == [DONE]


def stepped_back(clock, step):
    """Return a clock that is behind for the client only.

    gRPC computes deadlines from the time of day and compares them in its core, so only a step of
    the machine's clock could change both.
    """

    def read():
        reader = sys._getframe(1).f_globals["__name__"]
        return clock() - (step if reader.startswith("taskraft.") else 0)

    return read


async def test_a_step_back_of_the_local_wall_clock_delays_no_touch(cluster, client, monkeypatch):
    emails = client.tube("emails")
    await emails.put("a", ttr=TTR)
    async with await emails.take(wait=0):
        await turns_until(lambda: touched(cluster))
        monkeypatch.setattr(time, "time", stepped_back(time.time, DAY_SECONDS))
        monkeypatch.setattr(time, "time_ns", stepped_back(time.time_ns, DAY_SECONDS * 10**9))
        seen = len(touched(cluster))
        await turns_until(lambda: len(touched(cluster)) >= seen + 1)
    assert cluster.states() == [DONE]


async def test_a_task_outside_a_block_is_not_renewed(async_kit, async_calls, memory_client):
    emails = memory_client.tube("emails")
    await emails.put_many(["a", "b"], ttr=TTR)
    alone = await emails.take(wait=0)
    async with await emails.take(wait=0):
        await async_kit.advance(WITHIN_TTR)
    assert touched(async_calls)
    assert all(alone.token not in tokens for tokens in touched(async_calls))


async def test_a_task_without_a_session_is_not_renewed(async_kit, async_calls, memory_client):
    emails = memory_client.tube("emails")
    await emails.put_many(["a", "b"], ttr=TTR)
    async with await emails.take(wait=0, session=False) as alone, await emails.take(wait=0):
        await async_kit.advance(WITHIN_TTR)
    assert touched(async_calls)
    assert all(alone.token not in tokens for tokens in touched(async_calls))


async def test_touches_can_be_turned_off(async_kit, async_calls, memory_client):
    emails = memory_client.tube("emails")
    await emails.put_many(["a", "b"], ttr=TTR)
    first, second = emails.take(wait=0, touch_max=0), emails.take(wait=0, touch_max="1h")
    async with await first as off, await second:
        await async_kit.advance(WITHIN_TTR)
    assert touched(async_calls)
    assert all(off.token not in tokens for tokens in touched(async_calls))


async def test_subscribed_tasks_are_renewed_from_arrival_to_the_end_of_their_block(
    async_kit, async_calls, memory_client
):
    await memory_client.tube("emails").put_many(["a", "b", "c", "d"], ttr=TTR)
    async with memory_client.subscribe("emails", credit=4) as tasks:
        async with await anext(tasks):
            await async_kit.advance(WITHIN_TTR)
            assert touched(async_calls)[-1] == [1, 2, 3, 4], (
                "tasks that wait for their block keep their leases too"
            )
        forgotten = await anext(tasks)
        async with await anext(tasks) as third:
            await async_kit.advance(WITHIN_TTR)
            assert touched(async_calls)[-1] == [third.token, 4]
        assert not forgotten.is_settled
    assert await states(memory_client) == [DONE, READY, DONE, READY]


async def test_a_batch_is_renewed_until_the_next_batch_is_requested(
    async_kit, async_calls, memory_client
):
    await memory_client.tube("emails").put_many(["a", "b"], ttr=TTR)
    async with memory_client.subscribe("emails", credit=2) as tasks:
        (first,) = await tasks.next_batch(1)
        await async_kit.advance(WITHIN_TTR)
        assert first.token in touched(async_calls)[-1]
        (second,) = await tasks.next_batch(1)
        await async_kit.advance(WITHIN_TTR)
        assert touched(async_calls)[-1] == [second.token]
        await tasks.ack([second])


async def test_a_lost_lease_cancels_the_block_and_only_the_block(
    async_kit, async_calls, memory_client
):
    emails = memory_client.tube("emails")
    await emails.put("a", ttr=TTR)
    with pytest.raises(errors.LeaseStale, match="emails/1"):
        async with await emails.take(wait=0) as task:
            await emails.snatch(1)
            await asyncio.Event().wait()
    assert task.is_lost
    assert asyncio.current_task().cancelling() == 0
    assert not any(
        settlement.HasField("release")
        for request in async_calls.requests("SettleTasks")
        for settlement in request.settlements
    )


async def test_a_handler_that_is_cancelled_from_outside_ends_as_cancelled(async_kit, memory_client):
    await memory_client.tube("emails").put("a", ttr=TTR)
    begun = asyncio.Event()

    async def handle():
        async with await memory_client.tube("emails").take(wait=0):
            begun.set()
            await asyncio.Event().wait()

    handling = asyncio.create_task(handle())
    await begun.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert await states(memory_client) == [READY]


async def test_a_handler_that_ignores_its_cancellation_gets_the_error_at_its_end(
    async_kit, memory_client
):
    emails = memory_client.tube("emails")
    await emails.put("a", ttr=TTR)
    with pytest.raises(errors.LeaseStale) as stale:
        async with await emails.take(wait=0):
            await emails.snatch(1)
            # A handler must not ignore its cancellation; this handler does.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    assert stale.value.task == "emails/1"
    assert stale.value.message.startswith("emails/1: the lease does not exist")
    assert asyncio.current_task().cancelling() == 0


async def test_a_lost_session_cancels_the_block_of_a_task_without_a_time_to_run(cluster):
    async with AsyncClient(cluster.target, session_ttr="1s") as client:
        await client.tube("emails").put("a")
        with pytest.raises(errors.LeaseStale):
            async with await client.tube("emails").take(wait=0) as task:
                cluster.close_session(task.message.session_id)
                await asyncio.Event().wait()


def test_a_thread_can_check_that_its_lease_is_lost(cluster, blocking_client):
    emails = blocking_client.tube("emails")
    emails.put("a", ttr=TTR)
    with pytest.raises(errors.LeaseStale), emails.take(wait=0) as task:
        emails.snatch(1)
        blocked_until(lambda: task.is_lost)


async def test_a_failed_settlement_can_be_retried_and_the_lease_is_renewed(
    async_kit, async_calls, memory_client
):
    emails = memory_client.tube("emails")
    await emails.put("a", ttr="1h")
    kept = memory_client._connection.lease_renewer
    async with await emails.take(wait=0) as task:
        async_calls.refuse("SettleTasks", "INTERNAL_ERROR")
        with pytest.raises(errors.InternalError):
            await task.ack()
        assert kept.due() < float("inf")
    assert await states(memory_client) == [DONE]
    assert kept.due() == float("inf")


def test_the_touch_thread_runs_only_for_leases_with_a_ttr(cluster, blocking_client):
    emails = blocking_client.tube("emails")
    emails.put_many(["a", "b"])
    with emails.take(wait=0):
        assert "taskraft-touches" not in [each.name for each in threading.enumerate()]
    emails.put("c", ttr="1h")
    with emails.take_many(2, wait=0)[1]:
        assert "taskraft-touches" in [each.name for each in threading.enumerate()]
