"""Subscriptions over streams that break, move and resume."""

import asyncio
import contextlib
import time

import pytest

from taskraft import AsyncClient, _task_stream, errors
from taskraft.v1 import task_pb2
from taskraft_service.api.streams import responses
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

DONE = task_pb2.Task.DONE
READY = task_pb2.Task.READY
TAKEN = task_pb2.Task.TAKEN


@pytest.fixture
async def client_of_three(three):
    async with AsyncClient(three.target) as one:
        yield one


def released(cluster):
    """Return the releases that arrived on streams."""
    messages = cluster.requests("StreamMessage")
    return [one.release for message in messages for one in message.settlements]


async def test_tasks_come_in_order_and_are_acknowledged_on_the_same_stream(cluster, client):
    await client.tube("emails").put_many([str(n) for n in range(10)])
    seen = []
    async with client.subscribe("emails") as tasks:
        async for task in tasks:
            async with task:
                seen.append(task.text())
            if len(seen) == 10:
                break
    assert seen == [str(n) for n in range(10)]
    assert cluster.states() == [DONE] * 10
    assert not cluster.asked("SettleTasks")


async def test_the_server_never_has_more_credit_than_the_limit(cluster, client):
    await client.tube("emails").put_many([str(n) for n in range(10)])
    async with client.subscribe("emails", credit=4) as tasks:
        batch = await tasks.next_batch()
        while len(batch) < 4:
            batch += await tasks.next_batch()
        assert [task.text() for task in batch] == ["0", "1", "2", "3"]
        assert cluster.states().count(TAKEN) == 4
        await tasks.ack(batch)
        assert [task.text() for task in await tasks.next_batch()] == ["4", "5", "6", "7"]
        messages = cluster.requests("StreamMessage")
        assert [message.credit.tasks for message in messages] == [4, 4]
        assert messages[1].settlements, "credit travels with the settlements that free it"


async def test_batches_are_settled_in_one_message_and_refusals_are_reported(cluster, client):
    await client.tube("emails").put_many(["a", "b", "c"])
    async with client.subscribe("emails") as tasks:
        batch = await tasks.next_batch()
        await batch[1].ack()
        with pytest.raises(errors.ItemsRefused) as told:
            await tasks.ack(batch)
        assert list(told.value.refused) == [1]
    assert cluster.states() == [DONE] * 3


async def test_unsettled_tasks_are_released_at_the_end(cluster, client):
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails") as tasks:
        await anext(tasks)
    assert cluster.states() == [READY, READY]
    assert cluster.requests("CloseSession")[0].uncounted
    with pytest.raises(errors.ClientClosed):
        await anext(tasks)


@pytest.mark.parametrize("settle", ["ack", "release", "touch", "bury"])
async def test_a_task_of_a_closed_subscription_is_refused_at_once(client, settle):
    await client.tube("emails").put("a")
    async with client.subscribe("emails") as tasks:
        task = await anext(tasks)
    with pytest.raises(errors.ClientClosed, match="the subscription is closed"):
        await getattr(task, settle)()


@pytest.mark.parametrize("settle", ["ack", "release", "touch", "bury"])
async def test_a_task_of_a_closed_client_is_refused_at_once(cluster, settle):
    async with AsyncClient(cluster.target) as client:
        await client.tube("emails").put("a")
        task = await client.tube("emails").take(wait=0)
    with pytest.raises(errors.ClientClosed, match="the client is closed"):
        await getattr(task, settle)()


async def test_pending_settlements_are_sent_before_the_end(cluster, client):
    await client.tube("emails").put("a")
    async with client.subscribe("emails") as tasks:
        task = await anext(tasks)
        acknowledging = asyncio.create_task(task.ack())
        await asyncio.sleep(0)
    await acknowledging
    assert cluster.states() == [DONE]


async def test_iteration_ends_when_the_subscription_is_closed(client):
    tasks = client.subscribe("emails")
    waiting = asyncio.create_task(tasks.next_batch())
    await asyncio.sleep(0)
    await tasks.close()
    assert await waiting == []


async def test_a_stopped_subscription_releases_tasks_that_were_not_started(cluster, client):
    await client.tube("emails").put_many(["a", "b", "c", "d", "e"])
    async with client.subscribe("emails", credit=3) as tasks:
        (begun, *others) = await tasks.next_batch()
        while len(others) < 2:
            others += await tasks.next_batch()
        await tasks.stop(others)
        assert cluster.states() == [TAKEN] + [READY] * 4
        assert all(each.uncounted and not each.delay_ms for each in released(cluster))
        assert [task async for task in tasks] == []
        with pytest.raises(errors.ClientClosed):
            await tasks.narrow()
        assert not cluster.requests("CloseSession")
        await begun.ack()
    assert cluster.states() == [DONE] + [READY] * 4


async def test_tasks_that_arrive_after_the_stop_are_released(cluster, client):
    cluster.ignores = frozenset({"filter"})
    async with client.subscribe("emails", credit=1) as tasks:
        waiting = asyncio.create_task(tasks.next_batch())
        await turns_until(lambda: cluster.asked("StreamMessage"))
        await tasks.stop()
        assert await waiting == []
        await client.tube("emails").put("a")
        await turns_until(lambda: released(cluster))
        assert released(cluster)[0].uncounted


async def test_a_cancel_request_arrives_with_the_next_heartbeat(cluster, client, monkeypatch):
    monkeypatch.setattr(_task_stream, "HEARTBEAT_SECONDS", 0.02)
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails") as tasks:
        first, second = await anext(tasks), await anext(tasks)
        assert not first.is_cancel_requested
        await client.tube("emails").cancel(second.id)
        await turns_until(lambda: second.is_cancel_requested)
        assert not first.is_cancel_requested


async def test_closing_the_client_closes_its_subscriptions(cluster):
    async with AsyncClient(cluster.target) as client:
        tasks = client.subscribe("emails")
        await client.tube("emails").put("a")
        await anext(tasks)
    assert cluster.states() == [READY]


async def test_options_are_sent_when_the_stream_is_opened(cluster, client):
    tasks = client.subscribe(
        ["emails", "b*"],
        credit=5,
        credit_bytes=100,
        session_ttr="7s",
        types=["x"],
        priority_bound=3,
        ttr="9s",
    )
    waiting = asyncio.create_task(anext(tasks))
    await turns_until(lambda: cluster.requests("StreamMessage"))
    opening = tasks._buffer.stream._opening
    assert [source.tube for source in opening.sources] == ["emails", "b*"]
    assert (opening.session_ttr_ms, opening.ttr_ms, opening.priority_bound) == (7_000, 9_000, 3)
    assert cluster.requests("StreamMessage")[0].credit.bytes == 100
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


async def test_a_new_filter_is_sent_on_this_stream_and_the_next(cluster, client):
    tasks = client.subscribe("emails", types=["x"])
    waiting = asyncio.create_task(tasks.next_batch())
    await turns_until(lambda: cluster.requests("StreamMessage"))
    await tasks.narrow(types=["y"], priority_bound=2)
    await turns_until(
        lambda: any(one.HasField("filter") for one in cluster.requests("StreamMessage"))
    )
    told = next(one for one in cluster.requests("StreamMessage") if one.HasField("filter"))
    assert (list(told.filter.types), told.filter.priority_bound) == (["y"], 2)
    assert tasks._buffer.stream._filter == told.filter
    await tasks.narrow(none=True)
    await tasks.close()
    assert await waiting == []


# ----------------------------------------------------------------------------- streams that break


async def test_a_change_of_leader_keeps_the_session_and_the_leases(three, client_of_three):
    client = client_of_three
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails", credit=1) as tasks:
        task = await anext(tasks)
        session_id = tasks.session_id
        three.elect(1)
        await asyncio.to_thread(three.go_away, "NOT_LEADER", three.leader_address)
        await turns_until(lambda: [stream.node for stream in three.streams] == [1])
        await task.ack()
        assert (await anext(tasks)).text() == "b"
        assert tasks.session_id == session_id
        assert not task.is_lost
    assert three.asked("Subscribe") == [0, 1]


async def test_the_stream_moves_from_a_killed_leader_to_the_new_one(three, client_of_three):
    client = client_of_three
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails", credit=1) as tasks:
        task = await anext(tasks)
        await asyncio.to_thread(three.kill, 0)
        three.elect(2)
        await task.ack()
        assert (await anext(tasks)).text() == "b"
        assert tasks.reconnects >= 1
    assert three.states()[0] == DONE


async def test_an_unanswered_settlement_is_resent_with_its_idempotency_key(cluster, client):
    await client.tube("emails").put("a")
    async with client.subscribe("emails") as tasks:
        task = await anext(tasks)
        cluster.lose_answer("StreamSettle")
        await task.ack()
    sent = [message for message in cluster.requests("StreamMessage") if message.settlements]
    assert len(sent) == 2
    assert sent[0].idempotency_key
    assert sent[0].idempotency_key == sent[1].idempotency_key
    assert sent[0].settlements == sent[1].settlements


async def test_a_refused_message_of_settlements_is_repeated_or_raised(cluster, client):
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails") as tasks:
        first, second = await anext(tasks), await anext(tasks)
        cluster.refuse("StreamSettle", "COMMIT_UNKNOWN")
        await first.ack()
        cluster.refuse("StreamSettle", "INTERNAL_ERROR")
        with pytest.raises(errors.InternalError):
            await second.ack()


async def test_tasks_that_never_arrived_are_fetched_by_the_next_stream(cluster, client):
    cluster.loses = frozenset({"tasks"})
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails") as tasks:
        waiting = asyncio.create_task(tasks.next_batch())
        await turns_until(lambda: TAKEN in cluster.states())
        cluster.loses = frozenset()
        await asyncio.to_thread(cluster.go_away, "DRAINING")
        batch = await waiting
        assert [task.text() for task in batch] == ["a", "b"]
        assert batch[0].attempt == 1
        await tasks.ack(batch)


async def test_an_existing_session_is_resumed_with_its_leases_and_left_open(cluster, client):
    await client.tube("emails").put("a")
    first = client.subscribe("emails")
    await anext(first)
    # Closing leaves the session open, as the death of the process would.
    first._run._is_own_session = False
    await first.close()
    async with client.subscribe("emails", session=first.session_id) as tasks:
        task = await anext(tasks)
        assert (task.text(), task.attempt) == ("a", 1)
        await task.ack()
    assert cluster.is_open(first.session_id)


async def test_leases_that_come_in_several_messages_are_all_resumed(cluster, client, monkeypatch):
    monkeypatch.setattr(responses, "HELD_BYTES_MAX", 1)
    monkeypatch.setattr(responses, "MESSAGE_BYTES_TARGET", 1)
    await client.tube("emails").put_many(["a", "b", "c"])
    async with client.subscribe("emails") as tasks:
        batch = [await anext(tasks) for _ in range(3)]
        cluster.go_away("DRAINING")
        await turns_until(lambda: tasks.reconnects and tasks.is_connected)
        assert not any(task.is_lost for task in batch)
        await tasks.ack(batch)
    assert cluster.states() == [DONE] * 3


async def test_a_lost_session_is_replaced_and_its_tasks_are_marked(cluster, client):
    await client.tube("emails").put("a")
    async with client.subscribe("emails", credit=1) as tasks:
        task = await anext(tasks)
        lost = tasks.session_id
        await asyncio.to_thread(cluster.close_session, lost)
        again = await anext(tasks)
        assert task.is_lost
        assert tasks.session_id != lost
        with pytest.raises(errors.LeaseStale):
            await task.ack()
        await again.ack()


async def test_expired_leases_free_their_credit(cluster, client, monkeypatch):
    monkeypatch.setattr(_task_stream, "HEARTBEAT_SECONDS", 0.01)
    await client.tube("emails").put_many(["a", "b"])
    async with client.subscribe("emails", credit=1) as tasks:
        task = await anext(tasks)
        task.message.lease_until_ms = round(time.time() * 1_000) - 1_000
        assert (await anext(tasks)).text() == "b"
        assert task.is_lost


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
async def test_a_step_of_the_wall_time_ends_no_lease(cluster, client, monkeypatch, step_ms):
    monkeypatch.setattr(_task_stream, "HEARTBEAT_SECONDS", 0.01)
    await client.tube("emails").put_many(["a"])
    async with client.subscribe("emails", credit=2, ttr=30) as tasks:
        task = await anext(tasks)
        until_ms = task.message.lease_until_ms
        await turns_until(lambda: tasks._buffer._wall_offset_ms == 0)

        def step(heartbeat):
            heartbeat.now_ms += step_ms
            heartbeat.wall_offset_ms += step_ms

        cluster.edit_heartbeat = step
        await turns_until(lambda: tasks._buffer._wall_offset_ms == step_ms)
        assert not task.is_lost
        assert task.lease_until_ms == until_ms + max(step_ms, 0)
        await task.ack()


async def test_a_silent_server_is_left_after_three_heartbeats(three, client_of_three, monkeypatch):
    monkeypatch.setattr(_task_stream, "IDLE_HEARTBEAT_SECONDS", 0.01)
    three.loses = frozenset({"heartbeat"})
    async with client_of_three.subscribe("emails") as tasks:
        waiting = asyncio.create_task(tasks.next_batch())
        await turns_until(lambda: len(three.asked("Subscribe")) > 1)
        three.loses = frozenset()
        await client_of_three.tube("emails").put("a")
        assert (await waiting)[0].text() == "a"


async def test_an_idle_stream_sends_heartbeats(cluster, client, monkeypatch):
    monkeypatch.setattr(_task_stream, "IDLE_HEARTBEAT_SECONDS", 0.2)
    async with client.subscribe("emails") as tasks:
        waiting = asyncio.create_task(tasks.next_batch())
        await turns_until(
            lambda: sum(message.heartbeat for message in cluster.requests("StreamMessage")) >= 3
        )
        await client.tube("emails").put("a")
        await waiting
    assert len(cluster.asked("Subscribe")) == 1


async def test_a_subscription_with_a_lease_sends_heartbeats_more_often(
    cluster, client, monkeypatch
):
    monkeypatch.setattr(_task_stream, "HEARTBEAT_SECONDS", 0.01)

    def heartbeats():
        return sum(message.heartbeat for message in cluster.requests("StreamMessage"))

    async with client.subscribe("emails") as tasks:
        waiting = asyncio.create_task(tasks.next_batch())
        await turns_until(lambda: cluster.asked("Subscribe"))
        assert not heartbeats()
        await client.tube("emails").put("a")
        await waiting
        await turns_until(lambda: heartbeats() >= 3)


async def test_a_final_refusal_ends_the_subscription_for_all_waiting_callers(cluster, client):
    await client.tube("emails").put("a")
    tasks = client.subscribe("emails")
    task = await anext(tasks)
    await asyncio.to_thread(cluster.go_away, "NOT_ALLOWED")
    with pytest.raises(errors.NotAllowed):
        await anext(tasks)
    with pytest.raises(errors.NotAllowed):
        await task.ack()
    await tasks.close()


async def test_a_subscription_whose_last_tube_is_dropped_ends_with_the_reason(cluster, client):
    tasks = client.subscribe("emails")
    await client.tube("emails").put("a")
    await (await anext(tasks)).ack()
    waiting = asyncio.ensure_future(anext(tasks))
    await client.drop_tube("emails", force=True)
    with pytest.raises(errors.TubeNotFound):
        await waiting
    # A tube of the same name is another tube: the subscription is not opened again.
    await client.create_tube("emails", "fifottl")
    await client.tube("emails").put("b")
    with pytest.raises(errors.TubeNotFound):
        await anext(tasks)
    assert tasks.reconnects == 0
    await tasks.close()
