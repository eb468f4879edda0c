"""ListConsumers: who waits for the tasks of a tube, in which order, and for how long."""

import asyncio

import grpc
import pytest

from taskraft.v1 import session_service_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from tests.service.conftest import create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time

CALL, STREAM = tube_service_pb2.WaitingConsumer.CALL, tube_service_pb2.WaitingConsumer.STREAM


async def consumers(node, tube="emails", **fields):
    request = tube_service_pb2.ListConsumersRequest(tube=tube, **fields)
    return await node.tubes.ListConsumers(request)


async def subscribe(node, credit, *sources, types=(), labels=None):
    stream = node.tasks.Subscribe()
    opened = pb.SubscribeRequest.Open(
        sources=[pb.TakeSource(tube=source) for source in sources],
        types=types,
        session_ttr_ms=60_000,
        session_labels=labels,
    )
    request = pb.SubscribeRequest(open=opened)
    if credit:
        request.credit.tasks = credit
    await stream.write(request)
    await stream.read()
    return stream


async def test_calls_and_streams_are_listed_in_the_order_in_which_they_are_served(node):
    await create(node)
    idle = await subscribe(node, 0, "emails")
    stream = await subscribe(node, 3, "mail*", "e*", types=["welcome"])
    call = asyncio.ensure_future(take(node, wait_ms=60_000, tasks_max=7))
    waiters = node.server.components.waiters
    await turns_until(lambda: waiters.waiting_count("emails") == 3)
    answer = await consumers(node)
    first, second, third = answer.consumers
    assert (first.kind, list(first.sources), list(first.types)) == (
        STREAM,
        ["mail*", "e*"],
        ["welcome"],
    )
    assert (first.wanted, first.until_ms) == (3, 0)
    assert len(first.session_id) == 8
    assert (second.kind, list(second.sources), second.wanted) == (CALL, ["emails"], 7)
    assert second.until_ms - second.since_ms == pytest.approx(10_000, abs=500), "the deadline"
    assert (third.kind, third.wanted) == (STREAM, 0)
    for consumer in answer.consumers:
        assert 0 <= answer.now_ms - consumer.since_ms < 60_000
        assert (consumer.principal, consumer.peer) == ("", ""), "no authentication"
    await put(node, b"x")
    assert len((await call).tasks) == 1
    assert [one.kind for one in (await consumers(node)).consumers] == [STREAM, STREAM]
    stream.cancel()
    idle.cancel()


async def test_the_consumers_of_a_session_are_listed_with_what_they_accept(node):
    await create(node)
    streams = [
        await subscribe(node, 3, "mail*", "emails", labels={"host": "box"}),
        await subscribe(node, 0, "emails"),
    ]
    listed = await node.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
    (session,) = [one for one in listed.sessions if one.labels]
    assert dict(session.labels) == {"host": "box"}
    request = tube_service_pb2.ListConsumersRequest(session_id=session.session_id)
    (consumer,) = (await node.tubes.ListConsumers(request)).consumers
    assert (list(consumer.sources), consumer.wanted) == (["mail*", "emails"], 3)
    assert consumer.session_id == session.session_id
    for stream in streams:
        stream.cancel()


async def test_the_list_has_pages(node):
    await create(node)
    calls = [asyncio.ensure_future(take(node, wait_ms=60_000, tasks_max=n)) for n in range(1, 6)]
    await turns_until(lambda: node.server.components.waiters.waiting_count("emails") == 5)
    found, token = [], ""
    for _ in range(3):
        page = await consumers(node, page_size=2, page_token=token)
        found += [one.wanted for one in page.consumers]
        token = page.next_page_token
    assert (sorted(found), token) == ([1, 2, 3, 4, 5], "")
    for call in calls:
        call.cancel()


async def test_an_unknown_tube_is_refused(node):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await consumers(node, "nowhere")
    assert reason_of(caught.value) == "TUBE_NOT_FOUND"
