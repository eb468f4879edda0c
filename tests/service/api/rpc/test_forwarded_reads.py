"""A node that forwards a read receives a large answer of the leader only once there is room."""

import asyncio

import grpc
import pytest

from taskraft_service.api.rpc.answer_bytes import COUNTED_ANSWER_BYTES, answer_of_call, begun_answer
from taskraft_service.api.rpc.calls_at_leader import CallAttempts
from taskraft_service.api.rpc.grpc_calls import LeaderAnsweredError
from taskraft_service.api.rpc.status import CallRefused
from tests.service.api.rpc.call_loads import call_load
from tests.service.api.rpc.leader_bench import LEADER
from tests.turns import turns_until

pytestmark = pytest.mark.real_time


class Reading:
    """A forwarded read on a node whose answers another call fills."""

    def __init__(self, bench, answer):
        self.room = call_load().answers
        answer_of_call.set(self.room)
        self.other = begun_answer()
        self.other.set(self.room.bytes_max)
        bench.upstream.announced_bytes = len(answer)
        bench.upstream.answers = [answer]
        self.task = asyncio.create_task(self.serve(bench))

    async def serve(self, bench):
        answer_of_call.set(self.room)
        held = begun_answer()
        try:
            return await bench.call(attempts=CallAttempts(changes_state=False))
        finally:
            held.set(0)


async def test_a_large_answer_of_the_leader_waits_for_room(bench):
    bench.leads(LEADER)
    answer = bytes(2 * COUNTED_ANSWER_BYTES)
    reading = Reading(bench, answer)
    await turns_until(lambda: reading.room.has_waiting)
    assert len(reading.room.held) == reading.room.bytes_max
    reading.other.set(0)
    assert await reading.task == answer
    assert len(reading.room.held) == 0


async def test_a_small_answer_of_the_leader_does_not_wait_for_room(bench):
    bench.leads(LEADER)
    reading = Reading(bench, b"small")
    assert await reading.task == b"small"
    assert len(reading.room.held) == reading.room.bytes_max


async def test_a_read_returns_the_error_of_the_leader(bench):
    bench.leads(LEADER)
    bench.upstream.answers = [grpc.StatusCode.NOT_FOUND]
    with pytest.raises(LeaderAnsweredError) as caught:
        await bench.call(attempts=CallAttempts(changes_state=False))
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_a_forwarded_read_without_room_is_refused_and_ended(bench, monkeypatch):
    monkeypatch.setattr("taskraft_service.api.rpc.answer_bytes.ROOM_WAIT_SECONDS", 0.0)
    bench.leads(LEADER)
    reading = Reading(bench, bytes(2 * COUNTED_ANSWER_BYTES))
    with pytest.raises(CallRefused) as caught:
        await reading.task
    assert caught.value.metadata["limit"] == "answer_bytes_max"
