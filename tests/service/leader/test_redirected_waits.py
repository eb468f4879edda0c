"""Waiting calls and streams end in slices when this node leads no more; puts are woken in slices.

``tests/service/leader/test_outcome_waits.py`` has the calls that wait for outcomes.
"""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.rpc.status import RETRY_DELAY_MS
from taskraft_service.api.streams.subscribe import SubscriptionRegistry
from taskraft_service.api.streams.subscription_state import SubscriptionState
from taskraft_service.api.tasks.consumer_sources import ConsumerSources
from taskraft_service.api.tasks.waiting_take import WaitingTake, WaitingTakes
from taskraft_service.command_codecs.request_key import NO_KEY
from taskraft_service.leader.capacity_waiters import (
    CHECKED_AT_ONCE,
    FIRST_PUTS_MAX,
    CapacityWaiters,
)
from taskraft_service.leader.command_submitter import NotProposed
from taskraft_service.leader.waiters import Waiters
from taskraft_service.leader.waiting_consumer import ConsumerProfile
from taskraft_service.machine.sliced_calls import ENDED_AT_ONCE
from tests.service.api.rpc.call_loads import call_load
from tests.service.leader.test_waiters import Board

CALLS = 3 * ENDED_AT_ONCE + 1


async def slices_of(count, turns=CALLS):
    """Return by how much a count grows in each of the next turns of the event loop."""
    slices = [count()]
    for _ in range(turns):
        await asyncio.sleep(0)
        slices.append(count() - sum(slices))
    return slices


def take(number):
    sources = ConsumerSources([pb.TakeSource(tube=f"t{number}")])
    request = pb.TakeTasksRequest()
    return WaitingTake(request, sources, NO_KEY, lambda _tokens: None, ConsumerProfile())


async def test_waiting_takes_are_redirected_in_slices():
    waiters = Waiters(Board())
    takes = [take(number) for number in range(CALLS)]
    for one in takes:
        waiters.add(one)
    WaitingTakes(waiters).redirect_all()
    slices = await slices_of(lambda: sum(one.outcome.done() for one in takes))
    assert (max(slices), sum(slices)) == (ENDED_AT_ONCE, CALLS)
    assert all(isinstance(one.outcome.exception(), NotProposed) for one in takes)


async def test_streams_end_in_slices():
    registry = SubscriptionRegistry(call_load())
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="t")])
    streams = [
        SubscriptionState(opened, f"s{number}", lambda _tokens: None, registry.load)
        for number in range(CALLS)
    ]
    for one in streams:
        registry.add(one)
    registry.send_go_away(error_pb2.Error.NOT_LEADER, "moved", "there:1")
    slices = await slices_of(lambda: sum(one.responses.ended for one in streams))
    assert (max(slices), sum(slices)) == (ENDED_AT_ONCE, CALLS)
    last = await streams[-1].responses.next()
    go_away = pb.SubscribeResponse.FromString(last).go_away
    assert (go_away.leader, go_away.retry_ms) == ("there:1", RETRY_DELAY_MS)


class Room:
    """Tubes with room for some tasks; counts the questions."""

    def __init__(self, tasks):
        self.tasks = tasks
        self.asked = 0

    def queue_of(self, _tube):
        return SimpleNamespace(has_room=self.has_room)

    def has_room(self, _tube, tasks, _payload_bytes):
        self.asked += 1
        return tasks <= self.tasks


class PutStage:
    """Puts that wait for capacity."""

    def __init__(self, tubes):
        self.room = Room(0)
        self.waiters = CapacityWaiters(self.room)
        self.queued = [ExitStack() for _ in tubes]
        self.puts = [
            place.enter_context(self.waiters.enqueue(tube, 1, 1))
            for place, tube in zip(self.queued, tubes, strict=True)
        ]
        until = asyncio.get_running_loop().time() + 60
        self.waits = [asyncio.ensure_future(one.wait(until)) for one in self.puts]

    def told(self):
        return sum(put.turn is None or put.turn.done() for put in self.puts)

    async def end(self):
        self.room.tasks = 0
        for wait, place in zip(self.waits, self.queued, strict=True):
            wait.cancel()
            place.close()
        await asyncio.gather(*self.waits, return_exceptions=True)
        assert self.waiters.count == 0


async def test_waiting_puts_are_redirected_in_slices():
    stage = PutStage([f"t{number % 7}" for number in range(CALLS)])
    await asyncio.sleep(0)
    stage.waiters.redirect_all()
    slices = await slices_of(stage.told)
    assert (max(slices), sum(slices)) == (ENDED_AT_ONCE, CALLS)
    ends = await asyncio.gather(*stage.waits, return_exceptions=True)
    assert {type(end) for end in ends} == {NotProposed}
    await stage.end()


@pytest.mark.parametrize("room", [0, 1_000])
async def test_tubes_with_waiting_puts_are_checked_in_slices(room):
    stage = PutStage([f"t{number}" for number in range(3 * CHECKED_AT_ONCE)])
    await asyncio.sleep(0)
    stage.room.tasks = room
    stage.waiters.applied(0)
    slices = await slices_of(lambda: stage.room.asked, turns=20)
    assert max(slices) == CHECKED_AT_ONCE
    assert sum(slices) == len(stage.puts)
    assert stage.told() == (len(stage.puts) if room else 0)
    await stage.end()


async def test_entries_that_are_applied_during_a_check_are_followed_by_another_check():
    stage = PutStage([f"t{number}" for number in range(CHECKED_AT_ONCE + 1)])
    await asyncio.sleep(0)
    stage.waiters.applied(0)
    await asyncio.sleep(0)
    stage.room.tasks = 1
    stage.waiters.applied(0)
    await slices_of(lambda: 0, turns=20)
    assert stage.told() == len(stage.puts)
    await stage.end()


async def test_the_first_puts_of_a_tube_are_woken_in_order_and_the_others_when_these_leave():
    stage = PutStage(["t"] * (FIRST_PUTS_MAX + 50))
    await asyncio.sleep(0)
    stage.room.tasks = 10_000
    stage.waiters.applied(0)
    await slices_of(lambda: 0, turns=5)
    assert stage.told() == FIRST_PUTS_MAX
    assert all(wait.done() for wait in stage.waits[:FIRST_PUTS_MAX])
    stage.queued[0].close()
    assert stage.puts[FIRST_PUTS_MAX].turn.done()
    assert stage.told() == FIRST_PUTS_MAX + 1
    await stage.end()
