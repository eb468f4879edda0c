"""Tube policies on a node: retention, wake-ups, and refusals."""

from __future__ import annotations

import asyncio
import re

import grpc.aio
import pytest

from taskraft.v1 import error_pb2, task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import ack, put, take

pytestmark = pytest.mark.real_time

Options = tube_service_pb2.TubeOptions
Settlement = pb.Settlement


async def tube(node, name="emails", **options):
    made = tube_service_pb2.Tube(
        name=name, kind=tube_service_pb2.Tube.FIFOTTL, options=Options(**options)
    )
    answer = await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=made))
    return answer.tube


async def settle(node, task, **action):
    settlement = Settlement(tokens=[task.token], **action)
    return await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


async def get(node, task_id, name="emails"):
    selector = task_pb2.TaskSelector(ids=[task_id])
    answer = await node.tasks.GetTasks(pb.GetTasksRequest(tube=name, selector=selector))
    return answer.tasks[0] if answer.tasks else None


async def take_one(node, name="emails", **fields):
    (task,) = (await take(node, name, 1, **fields)).tasks
    return task


async def test_a_kept_result_is_read_back(node):
    await tube(node, on_ack=Options.RETAIN, retain_ms=3_600_000)
    await put(node, b"question")
    task = await take_one(node)
    finish = Settlement.Ack(result=b"42", result_content_type="text/plain", payload=b"answer")
    await settle(node, task, ack=finish)
    found = await get(node, 1)
    assert (found.state, found.outcome) == (task_pb2.Task.ZOMBIE, task_pb2.Task.PROCESSED)
    assert (found.result, found.result_content_type) == (b"42", "text/plain")
    assert found.spec.payload == b"answer"
    assert found.retain_until_ms == found.since_ms + 3_600_000
    listed = await node.tasks.ListTasks(pb.ListTasksRequest(tube="emails"))
    assert list(listed.tasks) == [found]


async def test_a_removed_task_is_answered_with_its_new_payload(node):
    await tube(node)
    await put(node, b"question")
    task = await take_one(node)
    finish = Settlement.Ack(result=b"42", result_content_type="text/plain", payload=b"answer")
    settlement = Settlement(tokens=[task.token], ack=finish)
    request = pb.SettleTasksRequest(settlements=[settlement], return_tasks=True)
    (gone,) = (await node.tasks.SettleTasks(request)).tasks
    assert await get(node, 1) is None
    expected = task_pb2.Task()
    expected.CopyFrom(task)
    expected.spec.payload, expected.outcome = b"answer", task_pb2.Task.PROCESSED
    expected.result, expected.result_content_type = b"42", "text/plain"
    for field in ("state", "token", "lease_until_ms", "since_ms", "session_id"):
        expected.ClearField(field)
    assert gone == expected


async def test_an_exhausted_task_wakes_a_consumer_of_its_dead_letter_tube(node):
    await tube(node, "dead")
    policy = task_pb2.RetryPolicy(attempts_max=1, exhausted=task_pb2.RetryPolicy.DEAD_LETTER)
    await tube(node, retry=policy, dead_letter_tube="dead")
    await put(node, b"a")
    waiting = asyncio.create_task(take_one(node, "dead", wait_ms=10_000))
    await node.waiting(1, "dead")
    task = await take_one(node)
    await settle(node, task, release=Settlement.Release(failure=task_pb2.Failure(type="Broken")))
    letter = await waiting
    assert (letter.tube, letter.failure.type, letter.attempt) == ("dead", "Broken", 1)
    assert await get(node, 1) is None


async def test_a_moved_task_wakes_a_waiting_consumer(node):
    await tube(node, "other")
    await tube(node)
    await put(node, b"a")
    waiting = asyncio.create_task(take_one(node, "other", wait_ms=10_000))
    await node.waiting(1, "other")
    await settle(node, await take_one(node), release=Settlement.Release(move_to="other"))
    assert (await waiting).spec.payload == b"a"


async def test_the_end_of_a_lease_frees_a_limited_concurrency(node):
    await tube(node, concurrency=1)
    await put(node, b"a", b"b")
    first = await take(node)
    assert [task.id for task in first.tasks] == [1]
    assert not (await take(node)).tasks
    waiting = asyncio.create_task(take_one(node, wait_ms=10_000))
    await node.waiting(1)
    await ack(node, first.tasks)
    assert (await waiting).id == 2


async def test_a_waiting_consumer_is_served_when_the_rate_allows_it(node):
    """Only the time of the log wakes the consumer; no call does."""
    await tube(node, rate_per_second=20, rate_burst=2)
    await put(node, b"a", b"b", b"c")
    at_once = await take(node)
    assert [task.id for task in at_once.tasks] == [1, 2]
    later = await take_one(node, wait_ms=10_000)
    assert later.id == 3
    assert later.since_ms - at_once.tasks[0].since_ms >= 50


async def test_a_full_tube_refuses_single_tasks_or_all(node):
    await tube(node, capacity_tasks=1)
    answer = await put(node, b"a", b"b")
    assert list(answer.task_ids) == [1, 0]
    (refused,) = answer.errors
    assert (refused.item, refused.error.reason) == (1, error_pb2.Error.TUBE_FULL)
    assert dict(refused.error.metadata)["value"] == "1"


async def test_progress_is_shown(node):
    await tube(node)
    await put(node, b"a")
    task = await take_one(node)
    told = task_pb2.Progress(basis_points=2_500, note="a quarter")
    await settle(node, task, touch=Settlement.Touch(progress=told))
    assert (await get(node, 1)).progress == told


async def test_a_release_changes_the_content_and_keeps_the_rest_of_the_spec(node):
    await tube(node)
    await put(node, b"a", content_type="text/plain", headers={"old": b"1", "kept": b"2"})
    update = task_pb2.TaskUpdate(
        payload=b"changed", headers_set={"new": b"3"}, headers_remove=["old"], priority=7
    )
    await settle(node, await take_one(node), release=Settlement.Release(update=update))
    found = await get(node, 1)
    assert found.spec.payload == b"changed"
    assert found.spec.content_type == "text/plain"
    assert dict(found.spec.headers) == {"kept": b"2", "new": b"3"}
    assert found.priority == 7


async def test_options_are_shown_with_their_effective_values(node):
    retry = task_pb2.RetryPolicy(attempts_max=3, backoff_ms=10)
    made = await tube(
        node,
        on_ack=Options.KEEP,
        capacity_tasks=5,
        retry=retry,
        dead_letter_tube="dead",
        rate_per_second=9,
        priority_min=0,
        ttl_scope=Options.ALL,
        ttl_policy=Options.KEEP_DEADLINE,
    )
    options = made.options
    assert (options.on_ack, options.capacity_tasks) == (Options.KEEP, 5)
    assert (options.retry.factor_percent, options.retry.backoff_ms_max) == (200, 86_400_000)
    assert options.retry.exhausted == task_pb2.RetryPolicy.BURY
    assert (options.dead_letter_tube, options.rate_per_second) == ("dead", 9)
    assert (options.priority_min, options.HasField("priority_max")) == (0, False)
    assert (options.ttl_scope, options.ttl_policy) == (Options.ALL, Options.KEEP_DEADLINE)
    assert not options.HasField("retain_ms")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (
            {"on_ack": Options.RETAIN, "rate_burst": 5, "capacity_tasks": -1},
            ["capacity_tasks", "retain_ms", "rate_burst"],
        ),
        (
            {"retry": task_pb2.RetryPolicy(attempts_max=-1, factor_percent=50, jitter_percent=101)},
            ["retry.attempts_max", "retry.jitter_percent", "retry.factor_percent"],
        ),
        ({"priority_min": 5, "subqueue_concurrency": 2}, ["subqueue_concurrency", "priority"]),
    ],
)
async def test_all_invalid_options_are_named_at_once(node, options, fields):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await tube(node, **options)
    named = re.findall(r"tube\.options\.([\w.]+):", caught.value.details())
    assert named == fields


async def test_a_release_says_that_no_attempts_were_left(node):
    await tube(node, retry=task_pb2.RetryPolicy(attempts_max=2))
    await put(node, b"1")
    failed = Settlement.Release(failure=task_pb2.Failure(type="SMTP"))
    task = await take_one(node)
    assert not (await settle(node, task, release=failed)).given_up
    task = await take_one(node)
    settlement = Settlement(tokens=[task.token], release=failed)
    request = pb.SettleTasksRequest(settlements=[settlement], request_id="last")
    buried = pb.GivenUpLease(token=task.token, outcome=task_pb2.Task.BURIED_OUT)
    for _ in range(2):
        assert list((await node.tasks.SettleTasks(request)).given_up) == [buried]


async def test_a_kick_says_how_many_buried_tasks_remain(node):
    await tube(node)
    await put(node, b"1", b"2", b"3")
    for task in (await take(node, "emails", 3)).tasks:
        await settle(node, task, bury=Settlement.Bury())
    kicked = await node.tasks.KickTasks(pb.KickTasksRequest(tube="emails", count=2))
    assert (kicked.count, kicked.buried) == (2, 1)
