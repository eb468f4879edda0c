"""The Subscribe stream over real gRPC."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.streams import responses
from taskraft_service.api.streams import subscribe_stream as stream_link
from taskraft_service.leader.node_phases import PhaseEvent
from tests.service.conftest import ack, create, put, reason_of, take
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


class Stream:
    """A client's end of one stream."""

    def __init__(self, node) -> None:
        self.call = node.tasks.Subscribe(timeout=20)
        self.tasks: list[task_pb2.Task] = []
        self.settled: list[pb.SubscribeResponse.Settled] = []
        self.session_id = ""

    async def open(self, *, tasks=0, credit_bytes=0, **fields):
        sources = [pb.TakeSource(tube="emails")]
        opened = pb.SubscribeRequest.Open(sources=sources, **fields)
        request = pb.SubscribeRequest(open=opened)
        if tasks:
            request.credit.tasks = tasks
            request.credit.bytes = credit_bytes
        await self.call.write(request)
        first = await self.read()
        self.session_id = first.opened.session_id
        return first

    async def read(self) -> pb.SubscribeResponse:
        message = await self.call.read()
        assert message is not grpc.aio.EOF, await self.call.code()
        self.tasks += message.tasks
        self.settled += message.settled
        return message

    async def read_tasks(self, count):
        while len(self.tasks) < count:
            await self.read()
        return self.tasks

    async def ack(self, tasks, request_id="", idempotency_key=""):
        settlement = pb.Settlement(tokens=[task.token for task in tasks], ack=pb.Settlement.Ack())
        message = pb.SubscribeRequest(
            settlements=[settlement], request_id=request_id, idempotency_key=idempotency_key
        )
        await self.call.write(message)

    async def answer(self, place):
        """Return the answer to a message of settlements by its place, from 0."""
        while len(self.settled) <= place:
            await self.read()
        return self.settled[place]

    async def drain(self):
        while await self.call.read() is not grpc.aio.EOF:
            pass

    async def filter(self, **wish):
        wanted = pb.SubscribeRequest.Filter(**wish)
        await self.call.write(pb.SubscribeRequest(filter=wanted))

    async def grant(self, tasks):
        await self.call.write(pb.SubscribeRequest(credit=pb.SubscribeRequest.Credit(tasks=tasks)))


@pytest.fixture
async def stream(node):
    await create(node)
    one = Stream(node)
    yield one
    one.call.cancel()


async def test_tasks_are_sent_as_they_are_put(node, stream):
    await stream.open(tasks=10)
    before = node.queue.applied_index
    await put(node, b"a", b"b")
    tasks = await stream.read_tasks(2)
    assert [task.spec.payload for task in tasks] == [b"a", b"b"]
    assert {task.session_id for task in tasks} == {stream.session_id}
    # The put and the take share one consensus round.
    assert node.queue.applied_index == before + 1


async def test_the_server_never_exceeds_the_credit(node, stream):
    await stream.open(tasks=3)
    await put(node, *[b"x"] * 10)
    await stream.read_tasks(3)
    assert node.queue.session(stream.session_id).taken == 3
    await stream.grant(2)
    await stream.read_tasks(5)
    assert node.queue.session(stream.session_id).taken == 5
    await stream.grant(100)
    assert len(await stream.read_tasks(10)) == 10


async def test_credit_in_bytes_holds_tasks_back(node, stream):
    await put(node, *[b"x" * 100] * 10)
    await stream.open(tasks=10, credit_bytes=250)
    await stream.read_tasks(2)
    await turns_until(lambda: not node.server.components.proposer._in_flight)
    assert node.queue.session(stream.session_id).taken in (2, 3)
    message = pb.SubscribeRequest(credit=pb.SubscribeRequest.Credit(bytes=10_000))
    await stream.call.write(message)
    assert len(await stream.read_tasks(10)) == 10


async def test_settlements_are_answered_in_order(node, stream):
    await stream.open(tasks=10)
    await put(node, b"a", b"b", b"c")
    tasks = list(await stream.read_tasks(3))
    await stream.ack(tasks[:1], "first")
    await stream.ack([], "wrong")
    await stream.ack(tasks[1:], "third")
    while len(stream.settled) < 3:
        await stream.read()
    assert [settled.request_id for settled in stream.settled] == ["first", "wrong", "third"]
    assert stream.settled[1].error.reason == error_pb2.Error.INVALID_FIELD
    assert not stream.settled[0].HasField("error")
    assert not stream.settled[2].errors


async def test_streams_that_count_their_messages_settle_their_own_tasks(node, stream):
    """The request_id is an echo: neither another stream nor another message makes it a retry."""
    other = Stream(node)
    for one in (stream, other):
        await one.open(tasks=2)
    await put(node, b"a", b"b", b"c", b"d")
    for one in (stream, other):
        await one.read_tasks(2)
    for place, number in enumerate(("1", "1")):
        for one in (stream, other):
            await one.ack(one.tasks[place : place + 1], number)
            answer = await one.answer(place)
            assert (answer.request_id, answer.HasField("error"), len(answer.errors)) == ("1", 0, 0)
    assert node.queue.total_statistics().total == 0
    other.call.cancel()


@pytest.mark.parametrize("client_id", ["", "mailer"])
async def test_settlements_with_an_idempotency_key_are_recognised_on_another_stream(
    node, stream, client_id
):
    await stream.open(tasks=1, client_id=client_id)
    await put(node, b"a")
    (task,) = await stream.read_tasks(1)
    await stream.ack([task], "1", "key")
    assert not (await stream.answer(0)).errors
    other = Stream(node)
    await other.open(client_id=client_id)
    await other.ack([task], "9", "key")
    answer = await other.answer(0)
    assert (answer.request_id, answer.HasField("error"), len(answer.errors)) == ("9", 0, 0)
    await other.ack([task], "10")
    assert (await other.answer(1)).errors[0].error.reason == error_pb2.Error.LEASE_STALE
    settle = pb.SettleTasksRequest(request_id="key", client_id=client_id)
    settle.settlements.add(tokens=[task.token], ack=pb.Settlement.Ack())
    assert not (await node.tasks.SettleTasks(settle)).errors
    other.call.cancel()


async def test_an_idempotency_key_of_a_stream_belongs_to_its_client_id(node, stream):
    other = Stream(node)
    await stream.open(tasks=1, client_id="a")
    await other.open(tasks=1, client_id="b")
    await put(node, b"a", b"b")
    for one in (stream, other):
        await one.read_tasks(1)
    for one in (stream, other):
        await one.ack(one.tasks, "1", "key")
        answer = await one.answer(0)
        assert (answer.HasField("error"), len(answer.errors)) == (False, 0)
    assert node.queue.total_statistics().total == 0
    other.call.cancel()


@pytest.mark.parametrize("key", ["x" * 65, "a\0b"])
async def test_an_invalid_idempotency_key_refuses_the_settlements_of_its_message(stream, key):
    await stream.open()
    await stream.ack([task_pb2.Task(token=1)], "1", key)
    error = (await stream.answer(0)).error
    assert error.reason == error_pb2.Error.INVALID_FIELD
    assert error.metadata["field"] == "idempotency_key"


async def test_a_stale_lease_is_refused_on_its_own(node, stream):
    await stream.open(tasks=10)
    await put(node, b"a")
    (task,) = await stream.read_tasks(1)
    await stream.ack([task, task], "twice")
    while not stream.settled:
        await stream.read()
    (error,) = stream.settled[0].errors
    assert (error.item, error.error.reason) == (1, error_pb2.Error.LEASE_STALE)


async def test_the_session_of_a_stream_ends_with_it(node, stream):
    await stream.open(tasks=10)
    await put(node, b"a")
    await stream.read_tasks(1)
    await stream.call.done_writing()
    while await stream.call.read() is not grpc.aio.EOF:
        pass
    assert await stream.call.code() is grpc.StatusCode.OK
    assert len((await take(node, wait_ms=5_000)).tasks) == 1
    assert not node.queue.sessions()


async def test_a_broken_stream_is_resumed_with_its_leases(node, stream):
    await stream.open(tasks=10, session_ttr_ms=60_000, session_name="worker")
    await put(node, b"a")
    (task,) = await stream.read_tasks(1)
    stream.call.cancel()
    await turns_until(lambda: node.queue.session(stream.session_id).expires_ms > 0)
    assert node.queue.session(stream.session_id).taken == 1, (
        "the broken stream keeps its leases until its session expires"
    )
    again = Stream(node)
    opened = await again.open(session_id=stream.session_id)
    assert [held.token for held in opened.opened.held] == [task.token]
    assert not opened.opened.held[0].spec.payload
    assert node.queue.session(stream.session_id).expires_ms == 0
    await again.ack([task])
    while not again.settled:
        await again.read()
    assert not again.settled[0].errors
    again.call.cancel()


async def test_a_long_list_of_leases_comes_in_several_messages_before_the_first_task(
    node, stream, monkeypatch
):
    await stream.open(tasks=3, session_ttr_ms=60_000)
    await put(node, b"1", b"2", b"3")
    held = [task.token for task in await stream.read_tasks(3)]
    stream.call.cancel()
    await turns_until(lambda: node.queue.session(stream.session_id).expires_ms > 0)
    await put(node, b"4")
    monkeypatch.setattr(responses, "HELD_BYTES_MAX", 1)
    monkeypatch.setattr(responses, "MESSAGE_BYTES_TARGET", 1)
    again = Stream(node)
    parts = [await again.open(session_id=stream.session_id, tasks=1)]
    while parts[-1].opened.held_continues:
        parts.append(await again.read())
    assert [[task.token for task in part.opened.held] for part in parts] == [[one] for one in held]
    assert {part.opened.session_id for part in parts} == {stream.session_id}
    assert not again.tasks
    (task,) = await again.read_tasks(1)
    assert task.spec.payload == b"4"
    again.call.cancel()


async def test_a_heartbeat_is_answered(node, stream):
    await stream.open()
    await stream.call.write(pb.SubscribeRequest(heartbeat=True))
    message = await stream.read()
    assert message.heartbeat.now_ms > 0
    assert message.heartbeat.leader == node.server.components.leadership.address


async def test_a_heartbeat_names_the_leases_with_a_cancel_request(node, stream, monkeypatch):
    monkeypatch.setattr(stream_link, "HEARTBEAT_INTERVAL_MIN_MS", 0)
    await stream.open(tasks=3)
    await put(node, b"1", b"2", b"3")
    first, second, third = await stream.read_tasks(3)
    selector = task_pb2.TaskSelector(ids=[first.id, third.id])
    await node.tasks.CancelTasks(pb.CancelTasksRequest(tube="emails", selector=selector))
    await stream.call.write(pb.SubscribeRequest(heartbeat=True))
    message = await stream.read()
    assert list(message.heartbeat.cancel_tokens) == [first.token, third.token]
    await stream.ack([first, second])
    while not stream.settled:
        await stream.read()
    await stream.call.write(pb.SubscribeRequest(heartbeat=True))
    assert list((await stream.read()).heartbeat.cancel_tokens) == [third.token]


async def test_heartbeats_are_sent_without_a_request(node, stream, monkeypatch):
    monkeypatch.setattr(stream_link, "HEARTBEAT_MS", 20)
    await stream.open(tasks=1)
    await put(node, b"1")
    await stream.read_tasks(1)
    for _ in range(3):
        assert (await stream.read()).HasField("heartbeat")


async def test_an_idle_stream_gets_heartbeats_at_the_interval_of_its_client(node, stream):
    await stream.open(heartbeat_ms=1_000)
    for _ in range(2):
        assert (await stream.read()).HasField("heartbeat")


@pytest.mark.parametrize("heartbeat_ms", [-1, 999, 86_400_001])
async def test_an_interval_of_heartbeats_out_of_range_is_refused(node, stream, heartbeat_ms):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.open(heartbeat_ms=heartbeat_ms)
    assert reason_of(caught.value) == "INVALID_FIELD"


async def test_a_silent_client_loses_its_stream(node, stream):
    streams = node.server.components.streams
    await stream.open(tasks=1, silence_ms_max=30)
    assert len(streams) == 1
    message = await stream.read()
    assert message.go_away.error.reason == error_pb2.Error.CLIENT_SILENT
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.call.read()
    assert reason_of(caught.value) == "CLIENT_SILENT"
    await turns_until(lambda: len(streams) == 0)


async def test_a_deposed_leader_ends_its_streams(node, stream):
    await stream.open(tasks=1)
    node.server.components.phases.apply(PhaseEvent.HAND_OVER)
    message = await stream.read()
    assert message.go_away.error.reason in (
        error_pb2.Error.NO_LEADER,
        error_pb2.Error.NOT_LEADER,
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.call.read()
    assert reason_of(caught.value) == error_pb2.Error.Reason.Name(message.go_away.error.reason)
    node.server.components.phases.apply(PhaseEvent.KEPT)


async def test_a_stopping_node_announces_it_on_its_streams(node, stream):
    await stream.open(tasks=1)
    stopping = asyncio.ensure_future(node.server.stop())
    message = await stream.read()
    assert message.go_away.error.reason == error_pb2.Error.DRAINING
    await stopping
    # The fixture stops the node again.
    node.server.stop = _nothing


async def _nothing():
    """Replace the stop of a node that is stopped already."""


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (pb.SubscribeRequest(heartbeat=True), "INVALID_FIELD"),
        (pb.SubscribeRequest(open=pb.SubscribeRequest.Open()), "INVALID_FIELD"),
        (
            pb.SubscribeRequest(
                open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="unknown")])
            ),
            "TUBE_NOT_FOUND",
        ),
        (
            pb.SubscribeRequest(
                open=pb.SubscribeRequest.Open(
                    sources=[pb.TakeSource(tube="emails")],
                    session_id="00000000-0000-4000-8000-000000000000",
                )
            ),
            "SESSION_NOT_FOUND",
        ),
        (
            pb.SubscribeRequest(
                open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails")]),
                credit=pb.SubscribeRequest.Credit(tasks=-1),
            ),
            "INVALID_FIELD",
        ),
        (
            pb.SubscribeRequest(
                open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="emails", weight=-2)])
            ),
            "INVALID_FIELD",
        ),
    ],
)
async def test_a_malformed_opening_is_refused(node, stream, first, reason):
    before = node.queue.digest() if reason != "INVALID_FIELD" else None
    await stream.call.write(first)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.drain()
    assert reason_of(caught.value) == reason
    if before is not None:
        assert node.queue.digest() == before
    await turns_until(lambda: len(node.server.components.streams) == 0)


async def test_two_openings_end_the_stream(node, stream):
    await stream.open()
    sources = [pb.TakeSource(tube="emails")]
    await stream.call.write(pb.SubscribeRequest(open=pb.SubscribeRequest.Open(sources=sources)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.call.read()
    assert reason_of(caught.value) == "INVALID_FIELD"


async def test_the_types_of_a_waiting_stream_change(node, stream):
    """docs/features.md, first table, row 54: READY tasks are not lost by the change."""
    await put(node, b"letter", type="letter")
    await put(node, b"parcel", type="parcel")
    await stream.open(tasks=10, types=["letter"])
    await stream.read_tasks(1)
    await node.waiting(1)
    await stream.filter(types=["parcel", "card"])
    await stream.read_tasks(2)
    await stream.filter(none=True)
    await put(node, b"card", type="card")
    assert (await take(node)).tasks[0].spec.payload == b"card"
    await put(node, b"note", type="note")
    await stream.filter()
    await stream.read_tasks(3)
    assert [task.spec.payload for task in stream.tasks] == [b"letter", b"parcel", b"note"]


async def test_the_priority_bound_of_a_waiting_stream_is_raised(node, stream):
    """docs/features.md, first table, row 55: a free worker takes less urgent tasks too."""
    await put(node, b"5", priority=5)
    await put(node, b"1", priority=1)
    await stream.open(tasks=10, priority_bound=1)
    await stream.read_tasks(1)
    await node.waiting(1)
    await stream.filter(priority_bound=5)
    await stream.read_tasks(2)
    assert [task.spec.payload for task in stream.tasks] == [b"1", b"5"]


async def test_a_filter_beyond_its_limits_is_refused_with_all_faults(node, stream):
    await stream.open()
    await stream.filter(types=["x" * 200], priority_bound=1, none=True)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.drain()
    assert reason_of(caught.value) == "INVALID_FIELD"
    assert "filter.types[0]" in caught.value.details()
    assert (
        "filter.none: not allowed together with types or priority_bound" in caught.value.details()
    )


async def test_subscriptions_take_turns(node, stream):
    other = Stream(node)
    await stream.open(tasks=100)
    await other.open(tasks=100)
    for number in range(10):
        await put(node, b"%d" % number)
    mine, theirs = await stream.read_tasks(5), await other.read_tasks(5)
    assert sorted(task.id for task in (*mine, *theirs)) == list(range(1, 11))
    other.call.cancel()


@pytest.fixture
def overloaded(node):
    """Make the leader refuse all commands that it may refuse."""
    pending = node.server.components.proposer._pending

    def overload():
        pending._limits = replace(pending._limits, pending_commands=0)

    return overload


async def test_an_overload_keeps_no_session_attached_and_no_task_leased(node, stream, overloaded):
    """A session that stays attached would never expire, and its task would be leased forever."""
    await stream.open(tasks=1, session_ttr_ms=1_000)
    await put(node, b"x")
    await stream.read_tasks(1)
    overloaded()
    stream.call.cancel()
    await turns_until(lambda: node.queue.session(stream.session_id).expires_ms > 0)
    assert node.queue.session(stream.session_id).taken == 1, (
        "the lease stays until the session expires"
    )


async def test_an_overload_refuses_puts_and_no_acknowledgement(node, stream, overloaded):
    await stream.open(tasks=2)
    await put(node, b"x", b"y")
    first, second = await stream.read_tasks(2)
    overloaded()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await put(node, b"z")
    assert reason_of(caught.value) == "OVERLOADED"
    await stream.ack([first], "1")
    while not stream.settled:
        await stream.read()
    assert not stream.settled[0].HasField("error")
    await ack(node, [second])
    assert node.queue.lease_count == 1, "only the session is left"
