"""Whoever waits is woken at the next turn, once."""

import asyncio

from taskraft_replication.node.change_notifier import ChangeNotifier


async def test_a_turn_wakes_those_who_wait_and_nobody_who_comes_later():
    changes = ChangeNotifier()
    early, cancelled = changes.next(), changes.next()
    cancelled.cancel()
    changes.take()
    late = changes.next()
    assert early.done()
    assert not late.done()
    changes.take()
    changes.take()
    await asyncio.gather(early, late)
