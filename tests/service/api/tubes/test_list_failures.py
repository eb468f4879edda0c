"""ListFailures: counts of failed attempts, their pages, and the counts after a restart."""

import asyncio

import grpc
import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.machine import failure_counter
from tests.service.conftest import config_in, create, put, running, take

pytestmark = pytest.mark.real_time


async def fail(node, tube, kind, *messages, **fields):
    """Put a task for each message, and let an attempt of each fail."""
    for message in messages:
        await put(node, b"x", tube=tube)
        (task,) = (await take(node, tube)).tasks
        reject = pb.Settlement.Reject(failure=task_pb2.Failure(type=kind, message=message))
        settlement = pb.Settlement(tokens=[task.token], reject=reject)
        await node.tasks.SettleTasks(pb.SettleTasksRequest(settlements=[settlement]))


async def listed(node, *tubes, **fields):
    request = tube_service_pb2.ListFailuresRequest(tubes=tubes, **fields)
    return await node.tubes.ListFailures(request)


def shown(answer):
    return [(one.tube, one.reason, one.message, one.count) for one in answer.failures]


async def test_failures_with_one_cause_are_one_row(node):
    await create(node, "mail")
    await create(node, "books")
    await fail(node, "mail", "Timeout", "no answer from 17", "no answer from 18")
    await fail(node, "books", "KeyError", "'title'")
    answer = await listed(node, "mail")
    (row,) = answer.failures
    assert (row.reason, row.message, row.count) == ("Timeout", "no answer from <number>", 2)
    assert (row.task_id, row.last_message) == (2, "no answer from 18")
    assert row.first_ms <= row.last_ms <= answer.now_ms
    assert sum(row.hours) == 2
    assert row.counted_since_ms == answer.counted_since_ms < row.first_ms
    assert answer.node == "n0"
    assert [one.tube for one in (await listed(node)).failures] == ["books", "mail"]
    assert shown(await listed(node, "none")) == []
    assert shown(await listed(node, since_ms=answer.now_ms + 60_000)) == []


async def test_the_fingerprint_is_that_of_the_change_feed(node):
    await create(node, "mail")
    await fail(node, "mail", "Timeout", "no answer from 17")
    (row,) = (await listed(node)).failures
    feed = node.queue.feed
    events = [
        event for part in feed.partitions for _, event in feed.events(part.number, 0, part.high_seq)
    ]
    assert [event.fingerprint for event in events if event.reason] == [row.fingerprint]


async def test_the_failures_of_a_task_have_the_same_fingerprint(node):
    await create(node, "mail")
    await fail(node, "mail", "Timeout", f"no answer from {'9' * 600}")
    (row,) = (await listed(node)).failures
    selector = task_pb2.TaskSelector(ids=[row.task_id])
    answer = await node.tasks.GetTasks(pb.GetTasksRequest(tube="mail", selector=selector))
    (task,) = answer.tasks
    assert task.failure.fingerprint == row.fingerprint != 0
    assert [one.failure.fingerprint for one in task.failures] == [row.fingerprint]


async def test_counts_begin_anew_after_events_that_were_removed(node):
    await create(node, "mail")
    await fail(node, "mail", "Timeout", "1", "2")
    assert [row.count for row in (await listed(node)).failures] == [2]
    await fail(node, "mail", "Timeout", "3", "4")
    feed = node.queue.feed
    removed = {view.partition: view.high_seq for view in feed.views()}
    newest_ms = max(view.high_ms for view in feed.views())
    feed.trim(removed)
    answer = await listed(node)
    assert (list(answer.failures), answer.counted_since_ms) == ([], newest_ms + 1)


async def test_a_burial_counts_as_given_up_and_a_dead_letter_once(node):
    await create(node, "dead")
    once = task_pb2.RetryPolicy(attempts_max=1)
    for name, target in (("mail", ""), ("books", "dead")):
        options = tube_service_pb2.TubeOptions(dead_letter_tube=target, retry=once)
        tube = tube_service_pb2.Tube(name=name, kind=tube_service_pb2.Tube.FIFOTTL, options=options)
        await node.tubes.CreateTube(tube_service_pb2.CreateTubeRequest(tube=tube))
        await fail(node, name, "Timeout", "1")
    rows = (await listed(node)).failures
    assert [(one.tube, one.count, one.given_up) for one in rows] == [
        ("books", 1, 1),
        ("mail", 1, 1),
    ]


async def test_pages_have_all_rows_in_order(node):
    for name in ("a", "a-b", "a.b"):
        await create(node, name)
        await fail(node, name, "First", "1")
        await fail(node, name, "Second", "1")
    whole = await listed(node)
    found, token = [], ""
    for _ in range(6):
        page = await listed(node, page_size=1, page_token=token)
        found += page.failures
        token = page.next_page_token
    assert token == ""
    assert found == list(whole.failures)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await listed(node, "a", page_token=(await listed(node, page_size=1)).next_page_token)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_restarted_node_counts_the_same_failures_again(tmp_path, monkeypatch):
    monkeypatch.setattr(failure_counter, "STEP_EVENTS", 3)  # Some chunks need several steps.
    async with running(config_in(tmp_path)) as node:
        await create(node, "mail")
        await fail(node, "mail", "Timeout", *(f"no answer from {number}" for number in range(20)))
        before = (await listed(node)).failures
    async with running(config_in(tmp_path)) as node:
        after = await listed(node)
        assert len(before) == 1
        for row in (*before, *after.failures):
            row.counted_since_ms = 0
        assert list(after.failures) == list(before)
        await fail(node, "mail", "Timeout", "no answer from 21")
        assert [row.count for row in (await listed(node)).failures] == [21]


async def test_a_restarted_node_counts_only_the_newest_events(tmp_path, monkeypatch):
    async with running(config_in(tmp_path, feed_partitions=1)) as node:
        await create(node, "mail")
        await fail(node, "mail", "Timeout", *"123456")
        (whole,) = (await listed(node)).failures
    monkeypatch.setattr(failure_counter, "EVENTS_MAX", 6)
    async with running(config_in(tmp_path, feed_partitions=1)) as node:
        answer = await listed(node)
        (row,) = answer.failures
        assert 1 <= row.count < whole.count == 6
        assert row.last_ms == whole.last_ms
        assert whole.first_ms < answer.counted_since_ms <= row.first_ms


async def test_the_events_of_the_background_are_counted_once(node, monkeypatch):
    monkeypatch.setattr(failure_counter, "STEP_EVENTS", 2)
    await create(node, "mail")
    await fail(node, "mail", "Timeout", *"12345678")
    counter = node.server.components.failure_counter
    background = counter.read()
    next(background)
    answers = await asyncio.gather(listed(node), listed(node))
    for _ in background:
        pass
    answers.append(await listed(node))
    assert [[row.count for row in answer.failures] for answer in answers] == [[8]] * 3
