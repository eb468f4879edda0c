"""A client or subscription that is dropped without close warns, and ends what it holds."""

import asyncio
import contextlib
import gc
import threading
import uuid
import warnings

import pytest

from taskraft import AsyncClient, Client
from tests.turns import blocked_until, turns_until


def drop(held):
    """Drop the last reference to an object, and collect its cycles."""
    held.clear()
    gc.collect()


async def test_a_dropped_subscription_warns_and_ends_its_stream_and_session(
    async_kit, memory_client
):
    emails = memory_client.tube("emails")
    await emails.put("a")
    tasks = memory_client.subscribe("emails")
    assert (await anext(tasks)).text() == "a"
    assert len(await async_kit.client.list_sessions()) == 1
    held = [tasks]
    del tasks
    with pytest.warns(ResourceWarning, match="unclosed taskraft subscription"):
        drop(held)
    await turns_until(lambda: not memory_client._connection._parts)
    await turns_until(lambda: memory_client._connection.abandoned_calls.is_idle)
    assert await async_kit.client.list_sessions() == []
    assert [(task.state, task.attempt) async for task in emails.list()] == [("READY", 0)]


async def test_a_subscription_in_use_is_not_dropped(memory_client):
    waiting = asyncio.ensure_future(anext(memory_client.subscribe("emails")))
    await turns_until(lambda: memory_client._connection._parts)
    gc.collect()
    await memory_client.tube("emails").put("a")
    assert (await waiting).text() == "a"
    held = [waiting]
    del waiting
    with pytest.warns(ResourceWarning, match="unclosed taskraft subscription"):
        drop(held)


async def test_a_dropped_client_warns_and_ends_its_session(async_kit):
    client = AsyncClient()
    await client.tube("emails").put("a")
    await client.tube("emails").take(wait=0)
    (session,) = await async_kit.client.list_sessions()
    held = [client]
    del client
    with pytest.warns(ResourceWarning, match="unclosed taskraft client"):
        drop(held)
    sessions = [session]
    while sessions:
        sessions = await async_kit.client.list_sessions()
    assert await async_kit.states("emails") == {"READY": 1}


async def test_a_client_whose_tube_is_in_use_is_not_dropped(async_kit):
    emails = AsyncClient().tube("emails")
    await emails.put("a")
    gc.collect()
    await emails.put("b")
    held = [emails]
    del emails
    with pytest.warns(ResourceWarning, match="unclosed taskraft client"):
        drop(held)
    assert await async_kit.states("emails") == {"READY": 2}


async def test_a_closed_or_unused_client_does_not_warn(async_kit):
    AsyncClient()
    async with AsyncClient() as client, client.subscribe("emails") as tasks:
        await client.tube("emails").put("a")
        await anext(tasks)
    held = [client, tasks]
    del client, tasks
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        drop(held)
    assert not found


@pytest.mark.real_time
def test_a_dropped_blocking_subscription_warns_and_ends_its_session(cluster, blocking_client):
    blocking_client.tube("emails").put("a")
    tasks = blocking_client.subscribe("emails")
    next(tasks)
    session_id = tasks.session_id
    held = [tasks]
    del tasks
    with pytest.warns(ResourceWarning, match="unclosed taskraft subscription"):
        drop(held)
    blocked_until(lambda: not cluster.is_open(session_id))
    assert cluster.requests("CloseSession")[0].uncounted


@pytest.mark.real_time
def test_a_dropped_blocking_client_warns_and_ends_its_session(cluster):
    client = Client(cluster.target)
    client.tube("emails").put("a")
    client.tube("emails").take(wait=0)
    (session_id,) = [request.session_id for request in cluster.requests("TakeTasks")]
    held = [client]
    del client
    with pytest.warns(ResourceWarning, match="unclosed taskraft client"):
        drop(held)
    assert not cluster.is_open(session_id)


@pytest.mark.real_time
async def test_a_dropped_client_with_sockets_warns_and_ends_its_session(cluster):
    client = AsyncClient(cluster.target)
    await client.tube("emails").put("a")
    await client.tube("emails").take(wait=0)
    (session_id,) = [request.session_id for request in cluster.requests("TakeTasks")]
    held = [client]
    del client
    with pytest.warns(ResourceWarning, match="unclosed taskraft client"):
        drop(held)
    await turns_until(lambda: not cluster.is_open(session_id))
    assert cluster.requests("CloseSession")[0].uncounted


async def put_and_take(client):
    """Put and take a task, so that the client has a session."""
    await client.tube("emails").put("a")
    await client.tube("emails").take(wait=0)


@pytest.mark.real_time
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_client_dropped_after_its_event_loop_has_ended_sends_no_heartbeats(cluster, is_closed):
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        client = AsyncClient(cluster.target)
        loop.run_until_complete(put_and_take(client))
        if is_closed:
            loop.close()
        thread = client._connection.keep_alive._heartbeats._thread
        assert thread.is_alive()
        held = [client]
        del client
        with pytest.warns(ResourceWarning, match="unclosed taskraft client"):
            drop(held)
        blocked_until(lambda: not thread.is_alive())


@pytest.mark.real_time
def test_a_client_can_be_dropped_on_its_heartbeat_thread(cluster):
    """Python collects garbage on any thread."""
    client = AsyncClient(cluster.target)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(put_and_take(client))
    keep_alive = client._connection.keep_alive
    thread = keep_alive._heartbeats._thread
    held, warned = [client], []
    del client

    def drop_here():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            drop(held)
        warned.append(threading.current_thread())
        warned.extend(each.category for each in found)

    keep_alive.add(str(uuid.UUID(int=0)), 1_000, drop_here)
    blocked_until(lambda: not thread.is_alive())
    assert warned == [thread, ResourceWarning]
