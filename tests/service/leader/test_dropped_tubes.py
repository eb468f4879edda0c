"""Consumers are told that their tube was dropped, a bounded number in one turn of the loop."""

import asyncio
from itertools import pairwise

from taskraft_service.leader.dropped_tubes import DroppedTubes
from taskraft_service.leader.waiters import Waiters
from taskraft_service.machine.sliced_calls import ENDED_AT_ONCE
from tests.service.leader.waiting import Board, Consumer


def waiting(*sources):
    """Return waiters with one consumer for each tuple of sources, and the consumers."""
    waiters = Waiters(Board(a=0, b=0))
    consumers = [Consumer(*names) for names in sources]
    for consumer in consumers:
        waiters.add(consumer)
    return waiters, consumers


async def test_consumers_get_an_error_when_their_tube_is_dropped():
    waiters, consumers = waiting(("a", "b"), ("a",), ("b",))
    dropped = DroppedTubes(waiters)
    dropped.add("a")
    dropped.add("nowhere")
    await asyncio.sleep(0)
    assert [consumer.sources for consumer in consumers] == [("b",), (), ("b",)]


async def test_consumers_of_a_dropped_tube_are_told_in_slices_while_they_wait():
    waiters, consumers = waiting(*[("a",)] * (3 * ENDED_AT_ONCE + 1), ("a",))
    DroppedTubes(waiters).add("a")
    *told, gone = consumers
    waiters.remove(gone)
    counts = [0]
    for _ in range(5):
        await asyncio.sleep(0)
        counts.append(sum(not consumer.sources for consumer in told))
    slices = [after - before for before, after in pairwise(counts)]
    assert slices == [ENDED_AT_ONCE, ENDED_AT_ONCE, ENDED_AT_ONCE, 1, 0]
    assert gone.sources == ("a",)
