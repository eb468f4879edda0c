"""A change wakes each waiting coroutine once."""

import asyncio

from taskraft_replication.node.change_notifier import ChangeNotifier


async def test_a_change_wakes_current_waiters_and_no_later_ones():
    changes = ChangeNotifier()
    early, cancelled = changes.wait(), changes.wait()
    cancelled.cancel()
    changes.notify_all()
    late = changes.wait()
    assert early.done()
    assert not late.done()
    changes.notify_all()
    changes.notify_all()
    await asyncio.gather(early, late)
