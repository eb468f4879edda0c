"""One stream: silence, settlements in flight, heartbeats, a lost leader."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.streams import subscribe_stream as stream_link
from taskraft_service.api.streams.subscribe_stream import (
    PLACES_WITHOUT_TURN_MAX,
    SETTLEMENTS_IN_FLIGHT_MAX,
    SubscribeStream,
)
from taskraft_service.api.streams.subscription_state import SubscriptionState
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.leader.waiters import Waiters
from taskraft_service.limits import HEARTBEAT_INTERVAL_MIN_MS, HEARTBEAT_MS, PUT_TASKS_MAX
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.operations.acknowledge import stale
from taskraft_service.queue.operations.settlements import SettleResult
from tests.service.api.rpc.call_loads import call_load
from tests.service.leader.waiting import Board, add
from tests.turns import turns_until

SILENCE_MS_MAX = 45_000
EACH_TUBE = pb.TakeSource(tube="*")
OPENING = pb.SubscribeRequest(open=pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="a")]))


class Stream:
    """A stream whose client sends the given messages and then waits for the end of the stream."""

    deadline = None
    arrives_together = False
    """Whether the messages that were sent arrive in one read."""

    @property
    def has_arrived(self):
        return self.arrives_together and not self.sent.empty()

    def __init__(self, *messages):
        self.metadata = {}
        self.sent = asyncio.Queue()
        for message in messages:
            self.send(message)
        self.received = []

    def send(self, message):
        self.sent.put_nowait(message if message is None else message.SerializeToString())

    async def read(self):
        return await self.sent.get()

    async def write(self, raw):
        self.received.append(pb.SubscribeResponse.FromString(raw))

    @property
    def settled(self):
        return [one for message in self.received for one in message.settled]


class Submitter:
    """Proposes settlements, and resolves them when the test asks for it."""

    def __init__(self):
        self.refusal = None
        self.proposed = []
        self.woken = 0

    def submit(self, recorded, deadline=None):
        if self.refusal is not None:
            raise self.refusal
        future = asyncio.get_running_loop().create_future()
        self.proposed.append((recorded.command, future))
        return future

    def wake(self):
        self.woken += 1


class Reading:
    """Reads of a queue in which no session holds a task, at 5 ms."""

    applied = SimpleNamespace(tube_names=lambda: ())
    queues = SimpleNamespace(
        cancelled=lambda _session_id: (),
        holds_lease=lambda _session_id: False,
        lease_tokens=lambda _session_id: (),
    )

    wall_offset_ms = 2

    @staticmethod
    def wall_now_ms():
        return 7


class ReadingWithLease(Reading):
    """Reads of a queue in which each session holds a task."""

    queues = SimpleNamespace(holds_lease=lambda _session_id: True)


class Linked:
    """A stream of the tube "a", or of many tubes."""

    def __init__(self, *messages, reading=Reading, tubes=None):
        opening = OPENING if tubes is None else pb.SubscribeRequest(open={"sources": [EACH_TUBE]})
        self.stream = Stream(opening, *messages)
        self.submitter = Submitter()
        self.load = call_load()
        self.waiters = Waiters(Board(**tubes or {"a": 0}))
        self.subscription = SubscriptionState(
            opening.open, "session", lambda _tokens: None, self.load
        )
        add(self.waiters, self.subscription)
        self.opened = []
        self.built = 0
        self.link = SubscribeStream(
            self.subscription, self.stream, self.submitter, self.waiters, reading(), 100
        )

    def run(self):
        first = self.stream.sent.get_nowait()

        async def beat():
            return pb.SubscribeResponse(heartbeat=pb.SubscribeResponse.Heartbeat(now_ms=5))

        return asyncio.ensure_future(self.link.run(first, self.opening(), beat))

    async def opening(self):
        for response in self.opened:
            self.built += 1
            yield response.SerializeToString()


def acked(number=0):
    settlement = pb.Settlement(tokens=[1], ack=pb.Settlement.Ack())
    return pb.SubscribeRequest(settlements=[settlement], request_id=f"r{number}")


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_responses_are_built_one_after_another_as_the_client_takes_them():
    one = Linked(acked())
    one.opened = [pb.SubscribeResponse(opened={"session_id": f"s{page}"}) for page in range(100)]
    load, page_bytes = one.load, one.opened[0].ByteSize()
    taken = asyncio.Semaphore(0)
    write = one.stream.write

    async def write_when_taken(raw):
        await taken.acquire()
        await write(raw)

    one.stream.write = write_when_taken
    running = one.run()
    await turns_until(lambda: one.submitter.proposed)
    one.submitter.proposed[0][1].set_result(AppliedCommand(1, 1, 0, SettleResult([], [])))
    await turn()
    assert one.built == 1
    assert page_bytes < load.held_bytes < 3 * page_bytes, "a page and the answer to a settlement"
    taken.release()
    await turns_until(lambda: one.built == 2)
    for _ in range(100):
        taken.release()
    one.stream.send(None)
    await running
    assert [part.opened.session_id for part in one.stream.received] == [
        *(f"s{page}" for page in range(100)),
        "",
    ]
    assert one.stream.received[-1].settled
    assert load.held_bytes == 0


async def test_pending_settlements_are_answered_after_the_client_has_half_closed():
    one = Linked(acked(), None)
    running = one.run()
    await turns_until(lambda: one.submitter.proposed)
    await turn()
    assert not running.done()
    one.submitter.proposed[0][1].set_result(AppliedCommand(1, 1, 0, SettleResult([], [])))
    await running
    assert [settled.request_id for settled in one.stream.settled] == ["r0"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotProposed("x"), error_pb2.Error.NOT_LEADER),
        (OutcomeUnknown("x"), error_pb2.Error.COMMIT_UNKNOWN),
        (LeaderOverloaded("x"), error_pb2.Error.OVERLOADED),
        (None, error_pb2.Error.COMMIT_UNKNOWN),
    ],
)
async def test_failed_settlements_are_reported(error, reason):
    one = Linked(acked(), None)
    running = one.run()
    await turns_until(lambda: one.submitter.proposed)
    (_, future) = one.submitter.proposed[0]
    if error is None:
        future.cancel()
    else:
        future.set_exception(error)
    await running
    assert [settled.error.reason for settled in one.stream.settled] == [reason]


async def test_settlements_that_cannot_be_proposed_are_answered_in_order():
    one = Linked(acked(0), acked(1))
    running = one.run()
    await turns_until(lambda: len(one.submitter.proposed) == 2)
    one.submitter.refusal = LeaderOverloaded("x")
    one.stream.send(acked(2))
    await turn()
    assert not one.stream.settled
    for _, future in one.submitter.proposed:
        future.set_result(AppliedCommand(1, 1, 0, SettleResult([], [])))
    one.stream.send(None)
    await running
    reasons = [(settled.request_id, settled.error.reason) for settled in one.stream.settled]
    assert reasons == [("r0", 0), ("r1", 0), ("r2", error_pb2.Error.OVERLOADED)]


def acks(name, *tokens, **fields):
    settlements = [pb.Settlement(tokens=[token], ack=pb.Settlement.Ack()) for token in tokens]
    return pb.SubscribeRequest(settlements=settlements, request_id=name, **fields)


async def submitted_together(*messages):
    """Return a stream whose messages arrived in one read, and its running task."""
    one = Linked(*messages)
    one.stream.arrives_together = True
    running = one.run()
    await turns_until(lambda: one.stream.sent.empty() and one.submitter.proposed)
    return one, running


def tokens_of(command):
    return [list(settlement.tokens) for settlement in command.settlements]


async def test_acknowledgements_that_arrive_together_are_one_command_with_own_answers():
    one, running = await submitted_together(acks("a", 1, 2), acks("b", 3), acks("c", 4, 5))
    ((command, future),) = one.submitter.proposed
    assert tokens_of(command) == [[1, 2, 3, 4, 5]]
    refused = [ItemRefusal(item, stale(item + 1)) for item in (1, 3, 4)]
    future.set_result(AppliedCommand(1, 1, 0, SettleResult(refused)))
    one.stream.send(None)
    await running
    assert [
        (settled.request_id, [error.item for error in settled.errors])
        for settled in one.stream.settled
    ] == [("a", [1]), ("b", []), ("c", [0, 1])]


async def test_only_plain_acknowledgements_without_a_key_share_a_command():
    kept = pb.Settlement(tokens=[2], ack={"keep": "DONE"})
    touched = pb.Settlement(tokens=[4], touch={"restart": True})
    one, running = await submitted_together(
        acks("a", 1),
        pb.SubscribeRequest(settlements=[kept], request_id="b"),
        acks("c", 3),
        pb.SubscribeRequest(settlements=[touched], request_id="d"),
        acks("e", 5, idempotency_key="k"),
        acks("f", 6),
        acks("g", 7),
    )
    commands = [command for command, _ in one.submitter.proposed]
    assert [tokens_of(command) for command in commands] == [[[n]] for n in range(1, 6)] + [[[6, 7]]]
    assert [bool(command.request_id) for command in commands] == [False] * 4 + [True, False]
    for _, future in reversed(one.submitter.proposed):
        future.set_result(AppliedCommand(1, 1, 0, SettleResult()))
    one.stream.send(None)
    await running
    assert [settled.request_id for settled in one.stream.settled] == list("abcdefg")


async def test_a_run_of_acknowledgements_respects_the_maximum_of_a_command():
    most = list(range(1, PUT_TASKS_MAX))
    one, running = await submitted_together(acks("a", *most), acks("b", 2_000), acks("c", 2_001))
    (first, _), (second, _) = one.submitter.proposed
    assert tokens_of(first) == [[*most, 2_000]]
    assert tokens_of(second) == [[2_001]]
    running.cancel()
    await asyncio.wait((running,))


async def test_an_invalid_message_between_acknowledgements_gets_its_own_error():
    one, running = await submitted_together(acks("a", 1), acks("b", -1), acks("c", 2))
    for _, future in one.submitter.proposed:
        future.set_result(AppliedCommand(1, 1, 0, SettleResult()))
    one.stream.send(None)
    await running
    reasons = [(settled.request_id, settled.error.reason) for settled in one.stream.settled]
    assert reasons == [("a", 0), ("b", error_pb2.Error.INVALID_FIELD), ("c", 0)]


async def test_acknowledgements_before_a_message_that_ends_the_stream_are_submitted():
    one = Linked(acks("a", 1), pb.SubscribeRequest(credit={"tasks": -1}))
    one.stream.arrives_together = True
    with pytest.raises(CallRefused):
        await one.run()
    ((command, _),) = one.submitter.proposed
    assert tokens_of(command) == [[1]]


async def test_a_refused_run_is_reported_for_each_message():
    one = Linked(acks("a", 1), acks("b", 2), None)
    one.stream.arrives_together = True
    one.submitter.refusal = LeaderOverloaded("x")
    await one.run()
    reasons = [(settled.request_id, settled.error.reason) for settled in one.stream.settled]
    assert reasons == [(name, error_pb2.Error.OVERLOADED) for name in "ab"]


async def test_settlements_of_a_stream_respect_the_payload_limit():
    large = pb.Settlement(tokens=[1], ack={"keep": "DONE", "payload": b"x" * 101})
    one = Linked(pb.SubscribeRequest(settlements=[large], request_id="r"), None)
    await one.run()
    (settled,) = one.stream.settled
    assert settled.error.reason == error_pb2.Error.PAYLOAD_TOO_LARGE
    assert settled.error.metadata["limit"] == "100"
    assert not one.submitter.proposed


async def test_a_message_beyond_a_limit_settles_nothing():
    bad = pb.SubscribeRequest(filter={"types": [""]}, credit={"tasks": -1, "bytes": -1})
    one = Linked(bad)
    with pytest.raises(CallRefused) as caught:
        await one.run()
    told = {field for field, _ in caught.value.violations}
    assert told == {"filter.types[0]", "credit.tasks", "credit.bytes"}
    assert not one.subscription.is_selective


async def test_a_stream_with_many_pending_settlements_is_not_read():
    one = Linked(*(acked(number) for number in range(SETTLEMENTS_IN_FLIGHT_MAX + 1)))
    running = one.run()
    await turns_until(lambda: len(one.submitter.proposed) == SETTLEMENTS_IN_FLIGHT_MAX)
    await turn()
    assert len(one.submitter.proposed) == SETTLEMENTS_IN_FLIGHT_MAX
    one.submitter.proposed[0][1].set_result(AppliedCommand(1, 1, 0, SettleResult([], [])))
    await turns_until(lambda: len(one.submitter.proposed) == SETTLEMENTS_IN_FLIGHT_MAX + 1)
    running.cancel()
    await asyncio.wait((running,))


async def test_a_client_whose_stream_is_not_read_does_not_count_as_silent():
    one = Linked(*(acked(number) for number in range(SETTLEMENTS_IN_FLIGHT_MAX)))
    one.subscription.silence_ms_max = SILENCE_MS_MAX
    running = one.run()
    await turns_until(lambda: len(one.submitter.proposed) == SETTLEMENTS_IN_FLIGHT_MAX)
    one.link._received_at = a_day_ago = one.link._received_at - 86_400
    half = asyncio.ensure_future(asyncio.Event().wait())
    waiting = asyncio.ensure_future(one.link._is_silent(half))
    await turn()
    assert not waiting.done()
    one.submitter.proposed[0][1].set_result(AppliedCommand(1, 1, 0, SettleResult([], [])))
    await turns_until(lambda: one.link._received_at > a_day_ago)
    assert one.link._silent_seconds() < SILENCE_MS_MAX / 1000
    for task in (half, waiting, running):
        task.cancel()
    await asyncio.wait((half, waiting, running))


async def test_a_silent_client_is_disconnected():
    one = Linked()
    one.subscription.silence_ms_max = SILENCE_MS_MAX
    one.link._received_at -= SILENCE_MS_MAX / 1000
    with pytest.raises(CallRefused) as caught:
        await one.run()
    assert caught.value.reason == error_pb2.Error.CLIENT_SILENT
    assert one.stream.received[-1].go_away.error.reason == error_pb2.Error.CLIENT_SILENT


async def test_without_a_maximum_of_silence_a_client_is_never_disconnected():
    one = Linked()
    one.link._received_at -= 86_400
    running = one.run()
    await turn()
    assert not running.done()
    one.stream.send(None)
    await running


async def test_messages_of_the_client_count_as_signs_of_life():
    one = Linked(pb.SubscribeRequest(credit=pb.SubscribeRequest.Credit(tasks=3)))
    one.link._received_at -= 10
    before = one.link._received_at
    running = one.run()
    await turns_until(lambda: one.subscription.credit_tasks == 3)
    assert one.link._received_at > before
    assert one.submitter.woken == 1
    assert one.waiters.to_check == {"a": None}
    one.stream.send(None)
    await running


GRANT = pb.SubscribeRequest(credit={"tasks": 1})
FILTERED = pb.SubscribeRequest(filter={"types": ["a"]}, credit={"tasks": 1})


@pytest.mark.parametrize(
    ("tubes", "message", "walks_per_turn"),
    [
        (PLACES_WITHOUT_TURN_MAX, GRANT, 20),
        (PLACES_WITHOUT_TURN_MAX + 1, GRANT, 1),
        (PLACES_WITHOUT_TURN_MAX + 1, FILTERED, 1),
    ],
)
async def test_a_stream_with_many_tubes_handles_buffered_messages_in_turns(
    monkeypatch, tubes, message, walks_per_turn
):
    one = Linked(*[message] * 20, tubes={f"a{number}": 0 for number in range(tubes)})
    walks = []
    monkeypatch.setattr(one.waiters, "requeue", walks.append)
    running = one.run()
    counts = [0]
    while one.subscription.credit_tasks < 20:
        await asyncio.sleep(0)
        counts.append(len(walks))
    assert max(after - before for before, after in pairwise(counts)) == walks_per_turn
    one.stream.send(None)
    await running


async def test_a_requested_heartbeat_replaces_the_next_one():
    one = Linked(pb.SubscribeRequest(heartbeat=True))
    running = one.run()
    await turns_until(lambda: one.stream.received)
    assert one.stream.received[0].heartbeat.now_ms == 5
    assert one.link._heartbeat_timer is None, "the timer of the stream's first heartbeat"
    one.stream.send(pb.SubscribeRequest(heartbeat=True))
    await turns_until(lambda: one.link._heartbeat_timer is not None)
    one.stream.send(None)
    await running
    assert one.link._heartbeat_timer is None


async def test_requested_heartbeats_are_sent_at_most_once_per_second():
    one = Linked(pb.SubscribeRequest(heartbeat=True))
    running = one.run()
    await turns_until(lambda: one.stream.received)
    beaten_at = one.link._heartbeat_at
    one.stream.send(pb.SubscribeRequest(heartbeat=True))
    one.stream.send(acked())
    await turns_until(lambda: one.submitter.proposed)
    await turn()
    assert len(one.stream.received) == 1
    assert one.link._heartbeat_timer.when() == beaten_at + HEARTBEAT_INTERVAL_MIN_MS / 1000
    one.submitter.proposed[0][1].set_result(AppliedCommand(1, 1, 0, SettleResult([], [])))
    one.stream.send(None)
    await running


def until_heartbeat_ms(one):
    """Return the time between the last heartbeat of a stream and its next one; None if none."""
    if one.link._heartbeat_timer is None:
        return None
    return round((one.link._heartbeat_timer.when() - one.link._heartbeat_at) * 1000)


@pytest.mark.parametrize(
    ("reading", "heartbeat_ms", "interval"),
    [
        (Reading, 0, None),
        (ReadingWithLease, 0, HEARTBEAT_MS),
        (Reading, 1_000, 1_000),
        (ReadingWithLease, 7_200_000, 7_200_000),
    ],
)
async def test_the_interval_of_heartbeats_follows_the_leases_and_the_wish_of_the_client(
    reading, heartbeat_ms, interval
):
    one = Linked(pb.SubscribeRequest(heartbeat=True), reading=reading)
    one.subscription.heartbeat_ms = heartbeat_ms
    running = one.run()
    await turns_until(lambda: one.stream.received)
    assert until_heartbeat_ms(one) == interval
    one.stream.send(None)
    await running


@pytest.mark.parametrize(("heartbeat_ms", "after_task_ms"), [(0, 5_000), (60_000, 60_000)])
async def test_a_task_to_an_idle_stream_starts_the_heartbeats(heartbeat_ms, after_task_ms):
    one = Linked(pb.SubscribeRequest(heartbeat=True))
    one.subscription.heartbeat_ms = heartbeat_ms
    running = one.run()
    await turns_until(lambda: one.stream.received)
    one.subscription.responses.add_message(pb.SubscribeResponse(tasks=[task_pb2.Task(id=1)]))
    await turns_until(lambda: len(one.stream.received) == 2)
    assert not one.stream.received[1].HasField("heartbeat")
    assert until_heartbeat_ms(one) == after_task_ms
    one.stream.send(None)
    await running


async def test_the_first_task_after_a_pause_comes_with_a_heartbeat():
    one = Linked(pb.SubscribeRequest(heartbeat=True), reading=ReadingWithLease)
    running = one.run()
    await turns_until(lambda: one.stream.received)
    one.link._heartbeat_at -= HEARTBEAT_MS / 1000
    one.subscription.responses.add_message(pb.SubscribeResponse(tasks=[task_pb2.Task(id=1)]))
    await turns_until(lambda: len(one.stream.received) == 2)
    assert one.stream.received[1].tasks
    assert one.stream.received[1].HasField("heartbeat")
    assert until_heartbeat_ms(one) == HEARTBEAT_MS
    one.stream.send(None)
    await running


async def test_the_pause_between_heartbeats_ends(monkeypatch):
    monkeypatch.setattr(stream_link, "HEARTBEAT_INTERVAL_MIN_MS", 20)
    one = Linked(pb.SubscribeRequest(heartbeat=True))
    running = one.run()
    await turns_until(lambda: one.stream.received)
    one.stream.send(pb.SubscribeRequest(heartbeat=True))
    await turns_until(lambda: len(one.stream.received) == 2)
    assert all(message.HasField("heartbeat") for message in one.stream.received)
    one.stream.send(None)
    await running
