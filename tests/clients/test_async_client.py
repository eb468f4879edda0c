"""Put, take and settle with asyncio, on a node in memory."""

import asyncio

import grpc
import pytest

from taskraft import AsyncClient, Retry, __version__, errors
from taskraft._tube_settings import update_request
from taskraft.v1 import task_pb2
from tests.turns import turns_until


@pytest.fixture
def client(memory_client):
    return memory_client


async def put_three(client):
    return await client.tube("emails").put_many(["a", "b", "c"])


# --------------------------------------------------------------------------------------------- put


async def test_a_put_carries_every_option_in_milliseconds(async_calls, client):
    await client.create_tube("welcomes", "utubettl")
    await client.groups.create("morning")
    await client.tube("welcomes").put(
        {"to": "a@b.c"},
        priority=-3,
        delay="10s",
        ttl=3_600,
        ttr="1m",
        headers={"a": "text", "b": b"\xff"},
        key=("welcome", "42"),
        on_conflict="return_existing",
        key_states=["READY", "DONE"],
        key_window="1h",
        subqueue="user-1",
        type="welcome",
        group="morning",
        position="front",
        visible_at_ms=5,
        retry=Retry(attempts_max=5, backoff="2s", factor=1.5, backoff_max="5m", jitter=0.1),
    )
    (request,) = async_calls.requests("PutTasks")
    assert request.tube == "welcomes"
    assert len(request.request_id) == 32
    assert list(request.tasks) == [
        task_pb2.TaskSpec(
            payload=b'{"to":"a@b.c"}',
            content_type="application/json",
            priority=-3,
            delay_ms=10_000,
            ttl_ms=3_600_000,
            ttr_ms=60_000,
            headers={"a": b"text", "b": b"\xff"},
            unique_key=["welcome", "42"],
            on_conflict=task_pb2.TaskSpec.RETURN_EXISTING,
            unique_states=[task_pb2.Task.READY, task_pb2.Task.DONE],
            unique_ms=3_600_000,
            subqueue="user-1",
            type="welcome",
            group="morning",
            position=task_pb2.TaskSpec.FRONT,
            visible_at_ms=5,
            retry=task_pb2.RetryPolicy(
                attempts_max=5,
                backoff_ms=2_000,
                factor_percent=150,
                backoff_ms_max=300_000,
                jitter_percent=10,
                exhausted=task_pb2.RetryPolicy.BURY,
            ),
        )
    ]


@pytest.mark.parametrize(
    ("payload", "content", "content_type"),
    [
        (b"\x00", b"\x00", ""),
        (bytearray(b"ab"), b"ab", ""),
        (memoryview(b"ab"), b"ab", ""),
        ("ü", "ü".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (None, b"null", "application/json"),
    ],
)
async def test_a_payload_is_encoded_by_its_type(
    async_calls, client, payload, content, content_type
):
    await client.tube("emails").put(payload)
    (spec,) = async_calls.requests("PutTasks")[0].tasks
    assert (spec.payload, spec.content_type) == (content, content_type)


@pytest.mark.parametrize("payload", [float("nan"), {"a": [float("inf")]}])
async def test_nan_is_refused_as_a_payload(async_calls, client, payload):
    with pytest.raises(ValueError, match="not JSON compliant"):
        await client.tube("emails").put(payload)
    assert not async_calls.requests("PutTasks")


@pytest.mark.parametrize("payload", ["\ud800", {"a": "\udfff"}])
async def test_half_of_a_surrogate_pair_is_refused_as_a_payload(async_calls, client, payload):
    with pytest.raises(ValueError, match="a payload must be text that UTF-8 can encode"):
        await client.tube("emails").put(payload)
    assert not async_calls.requests("PutTasks")


async def test_a_given_media_type_is_sent(async_calls, client):
    await client.tube("emails").put("<a/>", content_type="text/xml")
    assert async_calls.requests("PutTasks")[0].tasks[0].content_type == "text/xml"


def test_retries_without_a_limit_keep_the_default_back_off():
    policy = Retry.forever().message()
    assert (policy.attempts_max, policy.backoff_ms, policy.backoff_ms_max) == (0, 1_000, 600_000)
    assert (policy.factor_percent, policy.jitter_percent) == (200, 20)


async def test_an_unknown_option_is_refused_before_anything_is_sent(async_calls, client):
    with pytest.raises(TypeError, match="no option prio"):
        await client.tube("emails").put("a", prio=1)
    with pytest.raises(TypeError, match="take has no option colour"):
        await client.tube("emails").take(colour="red")
    with pytest.raises(TypeError, match="subscribe has no option colour, prio"):
        client.subscribe("emails", prio=1, colour="red")
    assert not async_calls.calls


async def test_concurrent_puts_share_a_message(async_calls, client):
    tube = client.tube("emails")
    async_calls.hold("PutTasks")
    first = [asyncio.create_task(tube.put(str(n))) for n in range(10)]
    await turns_until(lambda: async_calls.asked("PutTasks"))
    second = [asyncio.create_task(client.tube("emails").put(str(n))) for n in range(20)]
    await asyncio.sleep(0)
    async_calls.let_go("PutTasks")
    assert await asyncio.gather(*first, *second) == list(range(1, 31))
    assert [len(request.tasks) for request in async_calls.requests("PutTasks")] == [10, 20]


async def test_a_refused_item_fails_only_its_own_caller(client):
    tube = client.tube("emails")
    answers = await asyncio.gather(
        tube.put("a", key="1"), tube.put("c", key="1"), tube.put("b"), return_exceptions=True
    )
    assert answers[0] == 1
    assert isinstance(answers[1], errors.KeyTaken)
    assert answers[2] == 2


async def test_put_many_sends_full_messages_in_order(async_calls, client):
    async def payloads():
        for n in range(2_500):
            yield str(n)

    assert await client.tube("emails").put_many(payloads()) == list(range(1, 2_501))
    requests = async_calls.requests("PutTasks")
    assert [len(request.tasks) for request in requests] == [1_000, 1_000, 500]
    sent = [int(spec.payload) for request in requests for spec in request.tasks]
    assert sent == list(range(2_500))


async def test_large_payloads_make_smaller_messages(async_calls, client):
    await client.tube("emails").put_many([b"x" * 400_000] * 4)
    assert [len(request.tasks) for request in async_calls.requests("PutTasks")] == [3, 1]


async def test_items_refused_lists_errors_and_ids_of_accepted_tasks(client):
    tube = client.tube("emails")
    with pytest.raises(errors.ItemsRefused, match="1 of 3") as told:
        await tube.put_many([tube.task("a", key="1"), tube.task("c", key="1"), "b"])
    assert told.value.task_ids == [1, 0, 2]
    assert list(told.value.refused) == [1]


async def test_an_atomic_put_is_one_message_that_can_wait_for_capacity(async_calls, client):
    assert await client.tube("emails").put_atomic(["a", "b"], room_wait="3s") == [1, 2]
    (request,) = async_calls.requests("PutTasks")
    assert request.atomic
    assert request.room_wait_ms == 3_000


# -------------------------------------------------------------------------------------------- take


async def test_a_task_is_taken_in_the_session_of_the_client_and_acknowledged(async_calls, client):
    await put_three(client)
    task = await client.tube("emails").take(wait=0)
    assert (str(task), task.text(), task.state, task.attempt) == ("emails/1", "a", "TAKEN", 1)
    (session,) = await client.list_sessions()
    assert task.message.session_id.startswith(session.session_id)
    await task.ack({"done": True})
    assert task.is_settled
    settlement = async_calls.requests("SettleTasks")[0].settlements[0]
    assert settlement.ack.result == b'{"done":true}'
    assert settlement.ack.result_content_type == "application/json"


async def test_take_returns_none_if_no_task_arrives_in_time(client):
    assert await client.tube("emails").take(wait="10ms") is None
    assert await client.tube("emails").take_many(5, wait=0) == []


async def test_a_waiting_take_gets_a_task_as_soon_as_it_is_put(client):
    taking = asyncio.create_task(client.tube("emails").take())
    await asyncio.sleep(0)
    await client.tube("emails").put("a")
    assert (await taking).text() == "a"


async def test_a_task_can_be_taken_without_the_session(async_calls, client):
    await client.tube("emails").put("a", type="x")
    task = await client.tube("emails").take(wait=0, session=False, ttr="5s", types=["x"])
    assert task.message.session_id == ""
    (request,) = async_calls.requests("TakeTasks")
    assert (request.session_id, request.ttr_ms, list(request.types)) == ("", 5_000, ["x"])
    await client.settle(task.token)
    assert not async_calls.asked("OpenSession")


async def test_the_next_take_replaces_a_lost_session(async_calls, async_kit, client):
    await put_three(client)
    await client.tube("emails").take(wait=0)
    with async_kit.unreachable():
        await async_kit.advance("1h")
    again = await client.tube("emails").take(wait=0)
    assert (again.text(), again.attempt) == ("a", 2)
    assert len(async_calls.asked("OpenSession")) == 2


async def test_tasks_are_taken_from_several_tubes_by_weight(async_calls, client):
    await client.create_tube("a")
    await client.create_tube("b")
    await client.take_many({"a": 3, "b": 1}, 5, wait=0)
    (request,) = async_calls.requests("TakeTasks")
    assert [(source.tube, source.weight) for source in request.sources] == [("a", 3), ("b", 1)]


async def test_a_task_can_be_read_as_json(client):
    await client.tube("emails").put({"to": "a"})
    assert (await client.tube("emails").take(wait=0)).json() == {"to": "a"}


# ------------------------------------------------------------------------------------------ settle


async def test_a_second_acknowledgement_is_refused_as_stale(client):
    await put_three(client)
    task = await client.tube("emails").take(wait=0)
    await task.ack()
    with pytest.raises(errors.LeaseStale, match="emails/1: ") as stale:
        await task.ack()
    assert stale.value.task == "emails/1"


async def test_concurrent_settlements_share_a_message_and_are_grouped_by_kind(async_calls, client):
    await client.tube("emails").put_many([str(n) for n in range(6)])
    tasks = await client.tube("emails").take_many(6, wait=0)
    await asyncio.gather(
        *(task.ack() for task in tasks[:4]), tasks[4].release("5s"), tasks[5].bury("why")
    )
    (request,) = async_calls.requests("SettleTasks")
    assert [len(settlement.tokens) for settlement in request.settlements] == [4, 1, 1]
    assert request.settlements[1].release.delay_ms == 5_000
    assert request.settlements[2].bury.failure.message == "why"


async def test_a_touch_extends_the_lease_and_reports_progress(async_calls, async_kit, client):
    await client.tube("emails").put("a", ttr="20s")
    await async_kit.advance("5s")
    task = await client.tube("emails").take(wait=0)
    await task.touch("30s", progress=0.25, note="page 1")
    assert task.lease_until_ms == async_kit.clock.now_ms + 50_000
    touch = async_calls.requests("SettleTasks")[0].settlements[0].touch
    assert (touch.progress.basis_points, touch.progress.note) == (2_500, "page 1")
    assert not task.is_settled
    await task.touch()
    assert async_calls.requests("SettleTasks")[1].settlements[0].touch.restart


async def test_a_context_acknowledges_on_success(async_calls, client):
    await put_three(client)
    async with await client.tube("emails").take(wait=0):
        pass
    assert (await client.tube("emails").peek(1)).state == "DONE"


async def test_a_context_releases_with_the_failure_when_its_block_raises(async_calls, client):
    await put_three(client)
    with pytest.raises(ZeroDivisionError):
        async with await client.tube("emails").take(wait=0):
            _ = 1 / 0
    task = await client.tube("emails").peek(1)
    assert task.state == "DELAYED"
    failure = task.message.failure
    assert (failure.type, failure.message) == ("ZeroDivisionError", "division by zero")
    release = async_calls.requests("SettleTasks")[0].settlements[0].release
    assert not release.HasField("delay_ms"), "the retry policy decides about the next attempt"


async def test_a_keyboard_interrupt_does_not_count_as_an_attempt(async_calls, client):
    await put_three(client)
    with pytest.raises(asyncio.CancelledError):
        async with await client.tube("emails").take(wait=0):
            raise asyncio.CancelledError
    release = async_calls.requests("SettleTasks")[0].settlements[0].release
    assert release.uncounted


async def test_a_context_does_not_settle_a_task_that_was_settled_inside(async_calls, client):
    await put_three(client)
    async with await client.tube("emails").take(wait=0) as task:
        await task.bury("no")
    assert len(async_calls.asked("SettleTasks")) == 1


async def test_a_failure_text_is_cut_to_the_limit_of_the_api(async_calls, client):
    await put_three(client)
    task = await client.tube("emails").take(wait=0)
    await task.reject("ü" * 5_000)
    failure = async_calls.requests("SettleTasks")[0].settlements[0].reject.failure
    assert len(failure.message.encode()) == 4_096
    assert failure.fatal


# ------------------------------------------------------------------------------------ other calls


async def test_single_tasks_are_peeked_at_listed_kicked_and_deleted(client):
    tube = client.tube("emails")
    await put_three(client)
    task = await tube.take(wait=0)
    await task.bury()
    assert (await tube.peek(1)).state == "BURIED"
    assert [task.id async for task in tube.list()] == [1, 2, 3]
    assert await tube.kick() == 1
    assert await tube.delete([2, 3]) == 2
    with pytest.raises(errors.TaskNotFound):
        await tube.peek(2)
    with pytest.raises(errors.TaskNotFound):
        await tube.delete(2)
    with pytest.raises(errors.ItemsRefused):
        await tube.delete([1, 2])


async def test_a_tube_is_created_with_its_settings(async_calls, client):
    tube = await client.create_tube(
        "orders",
        "utubettl",
        ttr="1m",
        retain=5,
        on_ack="keep",
        if_not_exists=True,
        retry=Retry(attempts_max=3, position="front"),
        ttl_scope="all",
        ttl_policy="reset",
        rate_per_second=7,
        subqueue_weights={"a": 2},
        take_paused=True,
        priority_order="higher_first",
        capacity_tasks=9,
    )
    assert tube.name == "orders"
    (request,) = async_calls.requests("CreateTube")
    options = request.tube.options
    assert request.if_not_exists
    assert (request.tube.kind, options.ttr_ms, options.retain_ms) == (5, 60_000, 5_000)
    assert (options.on_ack, options.retry.attempts_max, options.capacity_tasks) == (2, 3, 9)
    assert (options.ttl_scope, options.ttl_policy, options.rate_per_second) == (3, 3, 7)
    assert (dict(options.subqueue_weights), options.take_paused) == ({"a": 2}, True)
    assert options.retry.position == task_pb2.TaskSpec.FRONT
    assert not options.HasField("ttl_ms")
    with pytest.raises(TypeError, match="no option colour"):
        await client.create_tube("emails", colour="red")


async def test_a_single_name_is_not_split_into_letters(async_calls, client):
    await client.create_tube("ab")
    await client.tube("ab").put("x")
    assert [one.tube for one in (await client.stats("ab")).tubes] == ["ab"]
    await client.list_tubes("ab")
    await client.take_many("ab", types="mail", wait=0)
    await client.tube("ab").put("y", key="k", key_states="READY")
    tasks = client.subscribe("ab", types="mail")
    assert list(tasks._buffer.stream._opening.types) == ["mail"]
    await tasks.narrow(types="post")
    assert list(tasks._buffer.stream._filter.types) == ["post"]
    assert [list(one.names) for one in async_calls.requests("ListTubes")] == [["ab"]]
    request = update_request("ab", reset="ttr", settings={})
    assert list(request.update_mask.paths) == ["ttr_ms"]
    assert list(async_calls.requests("TakeTasks")[0].types) == ["mail"]
    assert list(async_calls.requests("PutTasks")[1].tasks[0].unique_states) == [task_pb2.Task.READY]


async def test_tubes_are_listed_over_all_pages_counted_and_dropped(client):
    await client.drop_tube("emails")
    for name in ("a", "b", "c"):
        await client.create_tube(name)
        await client.tube(name).put("x")
    assert [tube.name for tube in await client.list_tubes()] == ["a", "b", "c"]
    assert (await client.tube("b").stats()).tasks.ready == 1
    await client.tube("c").put("y")
    counts = await client.stats()
    assert [(tube.tube, tube.tasks.total) for tube in counts.tubes] == [
        ("a", 1),
        ("b", 1),
        ("c", 2),
    ]
    assert counts.total.tasks.total == 4
    assert [tube.tube for tube in (await client.stats(["c", "a"])).tubes] == ["a", "c"]
    assert not (await client.stats(["nope"])).tubes
    assert await client.drop_tube("a", force=True) == 1
    with pytest.raises(errors.TubeNotFound):
        await client.tube("nope").stats()


async def test_the_state_of_the_cluster_is_returned(client):
    assert (await client.cluster_state()).leader == "memory"
    assert (await client.server_info()).version == __version__


async def test_the_feed_is_read_over_broken_streams_without_gap_or_repetition(
    async_kit, async_calls, client
):
    await client.tube("emails").put("a")
    events = client.changes(from_start=True)
    seen = [await anext(events)]
    with async_kit.unreachable():
        await async_kit.advance("1s")
    task = await client.tube("emails").take(wait=0)
    seen.append(await anext(events))
    with async_kit.unreachable():
        await async_kit.advance("1s")
    await task.ack()
    seen.append(await anext(events))
    await events.aclose()
    assert [event.seq for event in seen] == [0, 1, 2]
    assert {1, 2} <= {request.from_seq for request in async_calls.requests("ReadChanges")}


async def test_the_feed_is_followed_from_now(client):
    await client.tube("emails").put("before")
    events = client.changes()
    first = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    task_id = await client.tube("emails").put("after", delay="1h")
    assert (await first).task_id == (await anext(events)).task_id == task_id
    await events.aclose()


# --------------------------------------------------------------------------------- life of a client


async def test_a_closed_client_refuses_calls_and_releases_its_tasks(async_kit):
    client = AsyncClient()
    await put_three(client)
    await client.tube("emails").take(wait=0)
    await client.close()
    await client.close()
    with pytest.raises(errors.ClientClosed):
        await client.tube("emails").put("a")
    assert await async_kit.states("emails") == {"READY": 3}


async def test_a_client_that_was_never_used_closes_without_a_call(async_calls):
    async with AsyncClient():
        pass
    assert not async_calls.calls


async def test_a_client_belongs_to_one_event_loop(client):
    await client.tube("emails").put("a")

    def elsewhere():
        return asyncio.run(client.tube("emails").put("b"))

    with pytest.raises(RuntimeError, match="event loop"):
        await asyncio.to_thread(elsewhere)


async def test_each_reason_raises_its_own_exception(async_calls, client):
    with pytest.raises(errors.TubeNotFound):
        await client.tube("missing").put("a")
    async_calls.refuse(
        "PutTasks",
        "INVALID_FIELD",
        grpc.StatusCode.INVALID_ARGUMENT,
        violations=[("tube", "is malformed")],
    )
    with pytest.raises(errors.InvalidField) as told:
        await client.tube("a b").put("a")
    assert told.value.violations[0].field == "tube"
