"""Heartbeats that name many cancelled leases are built in turns, however many streams there are."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.api.streams.subscribe import CANCELLED_WITHOUT_TURN_MAX, SubscribeHandler
from taskraft_service.api.streams.subscription_state import SubscriptionState
from taskraft_service.limits import CANCEL_TOKENS_MAX
from taskraft_service.turns import TURNS_MAX
from tests.service.api.rpc.call_loads import call_load

STREAMS = 50


class Reader:
    """A state in which each session has cancelled leases; counts the lists that it returned."""

    wall_offset_ms = 2

    def __init__(self, leases):
        self.leases = leases
        self.lists = 0
        self.queues = self

    def cancelled(self, _session_id, tokens_max):
        self.lists += tokens_max == CANCEL_TOKENS_MAX
        return list(range(min(self.leases, tokens_max)))

    @staticmethod
    def wall_now_ms():
        return 5


def handler_of(reader):
    executor = SimpleNamespace(submitter=None)
    forwarder = SimpleNamespace(leadership=SimpleNamespace(address="here:1"))
    return SubscribeHandler(executor, reader, None, None, None, None, forwarder, 100)


@pytest.mark.parametrize(
    ("leases", "lists_per_turn"),
    [(CANCELLED_WITHOUT_TURN_MAX, STREAMS), (CANCELLED_WITHOUT_TURN_MAX + 1, TURNS_MAX)],
)
async def test_heartbeats_with_many_cancelled_leases_are_built_in_turns(leases, lists_per_turn):
    reader = Reader(leases)
    handler = handler_of(reader)
    opened = pb.SubscribeRequest.Open(sources=[pb.TakeSource(tube="t")])
    subscription = SubscriptionState(opened, "s", lambda _tokens: None, call_load())
    beats = [asyncio.ensure_future(handler._heartbeat(subscription)) for _ in range(STREAMS)]
    counts = [0]
    while not all(beat.done() for beat in beats):
        await asyncio.sleep(0)
        counts.append(reader.lists)
    assert max(after - before for before, after in pairwise(counts)) <= lists_per_turn
    assert {len(beat.result().heartbeat.cancel_tokens) for beat in beats} == {leases}
