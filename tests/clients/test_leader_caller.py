"""Failed calls are retried with the same request_id on another node until their deadline."""

import asyncio
import time

import grpc
import pytest

from taskraft import AsyncClient, Batch, _leader_caller, errors
from taskraft._leader_caller import pause_seconds
from tests.far_port import FarPort
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


def ids(requests):
    return [request.request_id for request in requests]


async def test_a_put_with_a_lost_response_is_retried_and_has_one_effect(cluster):
    cluster.lose_answer("PutTasks", times=3)
    async with AsyncClient(cluster.target) as client:
        assert await client.tube("emails").put("a") == 1
    requests = cluster.requests("PutTasks")
    assert len(requests) == 4
    assert all(request == requests[0] for request in requests)
    assert len(cluster.tasks()) == 1


async def test_a_take_with_a_lost_response_gets_the_same_leases(cluster):
    async with AsyncClient(cluster.target) as client:
        await client.tube("emails").put_many(["a", "b"])
        cluster.lose_answer("TakeTasks")
        assert (await client.tube("emails").take(wait=0)).text() == "a"
    first, second = cluster.requests("TakeTasks")
    assert first == second


async def test_each_call_has_a_request_id_of_its_own(cluster):
    async with AsyncClient(cluster.target) as client:
        await client.tube("emails").put("a")
        await client.tube("emails").put("b")
    first, second = ids(cluster.requests("PutTasks"))
    assert first != second


async def test_a_call_with_the_same_request_id_from_another_client_has_one_effect(cluster):
    ids = []
    for client_id in ("shop", "shop", "mail", ""):
        async with AsyncClient(cluster.target, client_id=client_id) as client:
            put = client.tube("emails").put("a", request_id="order-4711")
            ids.append(await put)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


async def test_puts_with_a_request_id_are_sent_in_messages_of_their_own(cluster):
    async with AsyncClient(cluster.target) as client:
        tube = client.tube("emails")
        await asyncio.gather(*(tube.put("a", request_id=f"order-{number}") for number in range(3)))
    requests = cluster.requests("PutTasks")
    assert sorted(ids(requests)) == ["order-0", "order-1", "order-2"]
    assert [len(request.tasks) for request in requests] == [1, 1, 1]


async def test_the_client_id_is_in_each_request_that_has_a_request_id(cluster):
    async with AsyncClient(cluster.target, client_id="shop") as client:
        tube = client.tube("emails")
        await tube.put("a")
        await tube.put_atomic(["b", "c"], request_id="atomic")
        async with await tube.take():
            pass
        async with client.subscribe("emails") as tasks:
            await (await anext(tasks)).ack()
    keyed = [request for _, _, request in cluster.calls if getattr(request, "request_id", "")]
    unscoped = ("StreamMessage", "KeepSessions")
    named = [
        (name, request.client_id)
        for name, _, request in cluster.calls
        if name not in unscoped and getattr(request, "request_id", "")
    ]
    assert {name for name, _ in named} >= {"PutTasks", "TakeTasks", "SettleTasks"}
    assert {client_id for _, client_id in named} == {"shop"}
    assert "atomic" in ids(keyed)
    assert [one.open.client_id for one in cluster.requests("StreamOpen")] == ["shop"]


@pytest.mark.parametrize(("request_id", "error"), [("", ValueError), (7, TypeError)])
async def test_a_request_id_that_cannot_identify_a_request_is_refused(cluster, request_id, error):
    async with AsyncClient(cluster.target) as client:
        tube = client.tube("emails")
        for call in (
            tube.put("a", request_id=request_id),
            tube.put_atomic(["a"], request_id=request_id),
            tube.put_and_wait("a", request_id=request_id),
            client.execute(Batch().put(tube.task("a")), request_id=request_id),
        ):
            with pytest.raises(error, match="request_id"):
                await call
    assert cluster.requests("PutTasks") == []


async def test_the_retry_delay_of_the_server_is_used(cluster):
    cluster.refuse("PutTasks", "NO_LEADER", retry_ms=300)
    async with AsyncClient(cluster.target) as client:
        started = time.monotonic()
        await client.tube("emails").put("a")
        assert time.monotonic() - started >= 0.3 * 0.8


async def test_a_call_raises_the_last_error_at_its_deadline(cluster):
    cluster.refuse("PutTasks", "NO_LEADER", times=1_000)
    async with AsyncClient(cluster.target, timeout="1s") as client:
        with pytest.raises(errors.NoLeader):
            await client.tube("emails").put("a")
    # The client gave up long before the cluster would have accepted the call.
    assert 1 < len(cluster.asked("PutTasks")) < 1_000


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("TUBE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("TUBE_PAUSED", grpc.StatusCode.UNAVAILABLE),
        ("DISK_LOW", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("LEASE_STALE", grpc.StatusCode.FAILED_PRECONDITION),
        ("INTERNAL_ERROR", grpc.StatusCode.INTERNAL),
    ],
)
async def test_a_final_error_is_raised_without_a_retry(cluster, reason, code):
    cluster.refuse("PutTasks", reason, code)
    async with AsyncClient(cluster.target) as client:
        with pytest.raises(errors.TaskraftError) as told:
            await client.tube("emails").put("a")
    assert told.value.reason == reason
    assert len(cluster.asked("PutTasks")) == 1


async def test_a_slow_connection_succeeds_at_the_first_attempt(cluster):
    async with FarPort(0.3) as far:
        far.target = int(cluster.target.rpartition(":")[2])
        async with AsyncClient(f"127.0.0.1:{far.port}") as client:
            assert await client.tube("emails").put("a") == 1
        assert far.arrivals == 1


async def test_a_node_that_does_not_answer_is_replaced_by_another(three, monkeypatch):
    monkeypatch.setattr(_leader_caller, "ATTEMPT_SECONDS_MAX", 0.1)
    three.hold_puts()
    async with AsyncClient(three.target) as client:
        put = asyncio.create_task(client.tube("emails").put("a"))
        await turns_until(lambda: len(three.asked("PutTasks")) >= 2)
        three.let_puts_go()
        assert await put == 1
    assert len(set(ids(three.requests("PutTasks")))) == 1
    assert len(set(three.asked("PutTasks"))) > 1


async def test_no_reachable_node_raises_unavailable():
    async with AsyncClient("127.0.0.1:1", timeout="1s") as client:
        with pytest.raises(errors.Unavailable):
            await client.tube("emails").put("a")


async def test_a_follower_that_forwards_is_asked_once_and_then_the_leader(three):
    three.elect(2)
    async with AsyncClient(three.target) as client:
        await client.tube("emails").put("a")
        await client.tube("emails").put("b")
        await client.tube("emails").put("c")
    assert three.asked("PutTasks") == [0, 2, 2]


async def test_a_follower_that_refuses_says_who_leads(three):
    three.forwards = False
    three.elect(2)
    async with AsyncClient(three.target) as client:
        await client.tube("emails").put("a")
    assert three.asked("PutTasks") == [0, 2]
    assert len(set(ids(three.requests("PutTasks")))) == 1


async def test_the_leader_can_be_missing_in_the_target(three):
    three.elect(1)
    async with AsyncClient(three.addresses[0]) as client:
        await client.tube("emails").put("a")
        await client.tube("emails").put("b")
    assert three.asked("PutTasks") == [0, 1]


async def test_a_killed_leader_costs_no_put_and_puts_nothing_twice(three):
    async with AsyncClient(three.target) as client:
        tube = client.tube("emails")
        await tube.put("first")
        await asyncio.to_thread(three.kill, 0)
        three.elect(1)
        task_ids = await asyncio.gather(*(tube.put(str(n)) for n in range(50)))
    assert sorted(task_ids) == list(range(2, 52))
    assert len(three.tasks()) == 51


async def test_during_an_election_all_nodes_are_asked_in_turns(three):
    three.forwards = False
    three.refuse("PutTasks", "NO_LEADER", times=4)
    async with AsyncClient(three.target) as client:
        await client.tube("emails").put("a")
    assert set(three.asked("PutTasks")) == {0, 1, 2}


@pytest.mark.parametrize(
    ("error", "attempts", "nodes", "least", "most"),
    [
        (errors.Unavailable("x"), 1, 3, 0, 0),
        (errors.Unavailable("x"), 3, 3, 0.2, 0.4),
        (errors.Unavailable("x"), 50, 3, 0.25, 0.5),
        (errors.NoLeader("x"), 1, 3, 0.05, 0.1),
        (errors.NoLeader("x", retry_ms=1_000), 1, 3, 0.8, 1.2),
        (errors.NotLeader("x", metadata={"leader": "a:1"}), 1, 3, 0, 0),
        (errors.NotLeader("x", metadata={"leader": "a:1"}), 9, 3, 0.05, 0.05),
    ],
)
def test_pauses_grow_with_jitter(error, attempts, nodes, least, most):
    for _ in range(20):
        assert least <= pause_seconds(error, attempts, nodes) <= most


def test_a_final_refusal_has_no_pause():
    assert pause_seconds(errors.LeaseStale("x"), 1, 3) is None
