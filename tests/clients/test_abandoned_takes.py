"""A take that is cancelled at any step leases no task for good, and counts no attempt."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from taskraft import AsyncClient, errors
from tests.turns import turns_until

STEPS_MAX = 2_000
WAITS_AFTER = 200
"""Turns of the event loop after which a take waits on the node."""


@pytest.fixture(params=["emails", "temporary"])
async def source(request, memory_client):
    """A tube of the replicated state, and a temporary one."""
    if request.param == "temporary":
        await memory_client.create_tube("temporary", durability="temporary")
    return memory_client.tube(request.param)


async def states(tube):
    """Return the state and the number of attempts of each task."""
    return [(task.state, task.attempt) async for task in tube.list()]


async def decided(client):
    """Wait until the abandoned takes of a client are decided."""
    await turns_until(lambda: client._connection.abandoned_calls.is_idle)


async def cancelled_after(call, steps):
    """Cancel a call after a number of turns of the event loop; return its result, if it ended."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        if task.done():
            return task.result()
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def test_a_waiting_take_that_is_cancelled_after_a_put_leases_nothing(source, memory_client):
    """The put arrives while the take waits; the take is cancelled at each step after the put."""
    for steps in count():
        assert steps < STEPS_MAX
        taking = asyncio.ensure_future(source.take(wait="20s"))
        for _ in range(WAITS_AFTER):
            await asyncio.sleep(0)
        await source.put("x")
        taken = await cancelled_after(taking, steps)
        if taken is not None:
            break
        await decided(memory_client)
        assert await states(source) == [("READY", 0)], f"cancelled after {steps} steps"
        await (await source.take(wait=0)).ack(keep="remove")
    await taken.ack()


async def test_a_void_take_cannot_take_effect_any_more(async_calls, memory_client):
    """The settlement uses the request_id of the take, so a late take is refused."""
    taking = asyncio.ensure_future(memory_client.tube("emails").take(wait="20s"))
    await turns_until(lambda: async_calls.requests("TakeTasks"))
    taking.cancel()
    await asyncio.wait([taking])
    await decided(memory_client)
    (take,) = async_calls.requests("TakeTasks")
    (settlement,) = async_calls.requests("SettleTasks")
    assert settlement.request_id == take.request_id
    await memory_client.tube("emails").put("x")
    with pytest.raises(errors.RequestIdReused):
        await memory_client._connection.call(lambda node: node.tasks.TakeTasks, take)


@pytest.mark.real_time
async def test_a_take_without_an_answer_in_time_is_decided_too(cluster, client):
    tube = client.tube("emails")
    await tube.put("x")
    cluster.lose_answer("TakeTasks", times=100)
    with pytest.raises(errors.TaskraftError, match="may have taken effect"):
        await tube.take(wait=0, timeout="0.2s")
    cluster.accept("TakeTasks")
    await decided(client)
    assert await states(tube) == [("READY", 0)]


async def test_a_closed_client_waits_for_its_abandoned_takes(async_kit, async_calls):
    async with AsyncClient() as client:
        await client.tube("emails").put("x")
        taking = asyncio.ensure_future(client.tube("emails").take(wait="20s"))
        await turns_until(lambda: async_calls.requests("TakeTasks"))
        taking.cancel()
        await asyncio.wait([taking])
    assert async_calls.requests("SettleTasks")
    assert await states(async_kit.client.tube("emails")) == [("READY", 0)]
