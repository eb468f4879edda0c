"""One stream: silence, settlements in flight, heartbeats, a lost leader."""

import asyncio
from itertools import pairwise

import pytest

from taskraft.v1 import error_pb2, task_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.streams import subscribe_stream as stream_link
from taskraft_service.api.streams.subscribe_stream import (
    PLACES_WITHOUT_TURN_MAX,
    SETTLEMENTS_IN_FLIGHT_MAX,
)
from taskraft_service.leader.command_submitter import (
    AppliedCommand,
    LeaderOverloaded,
    NotProposed,
    OutcomeUnknown,
)
from taskraft_service.limits import HEARTBEAT_INTERVAL_MIN_MS, HEARTBEAT_MS
from taskraft_service.queue.operations.settlements import SettleResult
from tests.service.api.streams.linked_stream import (
    Linked,
    Reading,
    ReadingWithLease,
    acked,
    turn,
)
from tests.turns import turns_until

SILENCE_MS_MAX = 45_000


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
