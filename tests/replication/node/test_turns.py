"""Whoever waits is woken at the next turn, once."""

import asyncio

from taskraft_replication.node.turns import Turns


async def test_a_turn_wakes_those_who_wait_and_nobody_who_comes_later():
    turns = Turns()
    early, cancelled = turns.next(), turns.next()
    cancelled.cancel()
    turns.take()
    late = turns.next()
    assert early.done()
    assert not late.done()
    turns.take()
    turns.take()
    await asyncio.gather(early, late)
