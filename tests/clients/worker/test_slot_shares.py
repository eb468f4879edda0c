"""Subscriptions that share slots hold no leases of tasks without a slot, and take turns."""

import asyncio

import pytest

from taskraft._clock import monotonic
from taskraft.worker.slot_shares import ASK_SECONDS, SlotShare
from taskraft.worker.slots import AttemptSlot, PoolSlots
from tests.clients.worker import handlers
from tests.clients.worker.handlers import events, pass_virtual, running
from tests.clients.worker.test_prefetch import SHORT_HANDLERS, are_in, states
from tests.turns import turns_until

WAIT = "30s"
PUT_PER_TASK = 20
LONG_SECONDS = 60
"""Time in which a lease without a slot would be seen, on the virtual clock."""


# ---------------------------------------------------------------------- on a cluster in memory


async def note_all(words: list[str]) -> None:
    events.extend(words)


async def test_no_task_has_a_lease_while_a_batch_holds_the_only_slot(app):
    batch = app.batch_task(size=2, linger="10ms")(handlers.hang_all)
    note = app.task(handlers.note)
    async with running(app, async_slots=1, grace=0):
        await batch.aput(1)
        await handlers.begun.wait()
        handles = [await note.aput("plain"), *await app.aput_many(map(batch.plan, range(4)))]
        await are_in(handles, [("READY", 0)] * 5)
        for _ in range(10):
            await pass_virtual(LONG_SECONDS / 10)
            assert await states(handles) == [("READY", 0)] * 5
        assert events == []


async def test_a_plain_handler_in_the_only_slot_keeps_batches_and_limited_tasks_ready(app):
    hang = app.task(time_limit=1.5 * LONG_SECONDS)(handlers.hang)
    batch, limited = app.batch_task(size=2)(note_all), app.task(concurrency=1)(handlers.note)
    async with running(app, async_slots=1, grace=0):
        await hang.aput()
        await handlers.begun.wait()
        waiting = [await batch.aput("a"), await limited.aput("b")]
        await pass_virtual(LONG_SECONDS)
        assert await states(waiting) == [("READY", 0)] * 2
        await pass_virtual(LONG_SECONDS)
        assert events.index("cleaned up") < min(events.index("a"), events.index("b"))


async def test_the_only_slot_goes_to_all_subscriptions_in_turn(app):
    tasks = [
        app.task(name="plain")(handlers.note),
        app.task(name="limited", concurrency=1)(handlers.note),
        app.batch_task(name="batch", size=1)(note_all),
    ]
    await app.acreate_tubes()
    for task in tasks:
        await app.aput_many([task.plan(task.name)] * PUT_PER_TASK)
    async with running(app, async_slots=1):
        await turns_until(lambda: len(events) == 3 * PUT_PER_TASK)
    assert all(events[:30].count(task.name) >= 3 for task in tasks), events


@pytest.mark.real_time
async def test_a_task_without_a_slot_goes_to_another_worker_while_threads_are_busy(real_app):
    block, index = real_app.task(handlers.block), real_app.batch_task(size=2)(handlers.index)
    subtract = real_app.task(handlers.subtract)
    thread_batch = real_app.batch_task(size=2, name="thread_batch")(handlers.index_in_thread)
    async with running(real_app, threads=1):
        await block.aput()
        await handlers.begun.wait()
        handles = [await subtract.aput(1, 1), await thread_batch.aput(1)]
        tube = real_app.clients.here().tube(subtract.tube)
        taken = [await tube.take(wait=WAIT) for _ in handles]
        assert sorted(one.id for one in taken) == sorted(one.id for one in handles)
        assert [one.attempt for one in taken] == [1, 1]  # the worker's own lease does not count
        assert await (await index.aput(7)).aresult(WAIT) == "one"  # coroutines have other slots
        for one in taken:
            await one.ack()


# ------------------------------------------------------------------------- without a cluster


class Subscription:
    """Records the credit that a share gives."""

    credit = 10

    def __init__(self):
        self.withheld = 0
        self.open_credit = 0
        self.is_paused = False
        self.handed_back = 0

    def withhold(self, tasks, *, is_due):
        self.is_due = is_due
        self.withheld += tasks

    def pause(self, *, is_paused):
        self.is_paused = is_paused

    def hand_back(self):
        self.handed_back += 1

    @property
    def allowed(self):
        return self.credit - self.withheld


class First:
    """A task that has just arrived."""

    def __init__(self):
        self.lease = self
        self.started = monotonic()


def shared(pool, *sizes, **options):
    """Return a share with a subscription in memory for each size."""
    chosen = {"slots_max": pool.common, "free_max": pool.common, "ahead_max": 0} | options
    return [SlotShare(pool.common_shares, Subscription(), size=size, **chosen) for size in sizes]


async def started(pool, share):
    held = await share.take(First())
    return None if held is None else AttemptSlot(pool, share, held)


def allowed(shares):
    return [share.subscription.allowed for share in shares]


async def divided():
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.fixture
def virtual(ataskraft):
    """Let the waits of a test end at once."""


async def test_free_slots_are_divided_among_those_that_ask(virtual):
    pool = PoolSlots(8)
    shares = shared(pool, 1, 1, 1)
    assert allowed(shares) == [3, 3, 2]
    await pass_virtual(2 * ASK_SECONDS)
    assert allowed(shares) == [8, 8, 8]  # nobody knows who gets the next task


async def test_one_subscription_fills_all_slots_although_others_share_them(virtual):
    pool = PoolSlots(8)
    busy, idle = shares = shared(pool, 1, 1)
    slots = [await started(pool, busy) for _ in range(4)]
    await pass_virtual(2 * ASK_SECONDS)
    slots += [await started(pool, busy) for _ in range(4)]
    await divided()
    assert None not in slots
    assert allowed(shares) == [8, 0]
    assert not idle.subscription.is_paused  # the server has no credit to send by


async def test_a_subscription_with_open_credit_is_paused_while_no_slot_is_free(virtual):
    pool = PoolSlots(1)
    busy, other = shared(pool, 1, 5)
    await pass_virtual(2 * ASK_SECONDS)
    other.subscription.open_credit = 5
    slot = await started(pool, busy)
    await divided()
    assert other.subscription.is_paused
    slot.end(None)
    await divided()
    assert not other.subscription.is_paused


async def test_the_second_task_for_one_slot_is_handed_back_and_is_the_next(virtual):
    pool = PoolSlots(1)
    first, second = shares = shared(pool, 1, 1)
    slot = await started(pool, first)
    now = monotonic()
    assert await started(pool, second) is None
    assert monotonic() == now  # at once, on the virtual clock
    assert second.subscription.handed_back == 1
    await divided()
    assert second.subscription.is_paused
    slot.end(None)
    await divided()
    assert allowed(shares) == [0, 1]
    assert second.subscription.is_due  # in a message of its own
    slot = await started(pool, second)
    await started(pool, first)
    slot.end(None)
    await divided()
    assert allowed(shares) == [1, 0]


async def test_a_slot_is_kept_free_for_a_silent_subscription_only_for_a_short_time(virtual):
    pool = PoolSlots(1)
    first, second = shares = shared(pool, 1, 1)
    slot = await started(pool, first)
    await started(pool, second)
    slot.end(None)
    await divided()
    assert allowed(shares) == [0, 1]
    await pass_virtual(3 * ASK_SECONDS)
    assert allowed(shares) == [1, 1]


async def test_a_batch_has_credit_for_its_size_while_it_is_collected(virtual):
    pool = PoolSlots(2)
    (share,) = shared(pool, 5, free_max=1)
    assert share.subscription.allowed == 5
    slot = await started(pool, share)
    await divided()
    assert share.subscription.allowed == 10  # the second slot can collect the next batch
    slot.begins(3)
    last = await started(pool, share)
    last.begins(5)
    await divided()
    assert share.subscription.allowed == 8
    for one in (slot, last):
        one.end(None)
    await divided()
    assert share.subscription.allowed == 5


async def test_a_slot_that_a_waiting_handler_lends_is_free_for_others(virtual):
    pool = PoolSlots(1)
    first, second = shares = shared(pool, 1, 1)
    await pass_virtual(2 * ASK_SECONDS)
    slot = await started(pool, first)
    await divided()
    assert allowed(shares) == [1, 0]
    slot.handler.wait_started()
    await divided()
    assert allowed(shares) == [1, 1]
    other = await started(pool, second)
    other.end(None)
    await slot.handler.wait_ended()
    await divided()
    assert allowed(shares) == [1, 0]


async def test_a_task_waits_for_a_slot_only_while_handlers_are_short(virtual):
    pool = PoolSlots(1)
    (share,) = shared(pool, 1, ahead_max=4)
    for _ in range(SHORT_HANDLERS):
        pool.prefetch.ended(0.0)
    slot = await started(pool, share)
    await divided()
    assert share.subscription.allowed == 5
    waiting = asyncio.create_task(started(pool, share))
    await divided()
    slot.end(None)
    assert (await waiting) is not None
    assert await started(pool, share) is None  # after a wait of one second
    assert share.subscription.handed_back == 1
    await divided()
    assert share.subscription.allowed == 1
    assert await started(pool, share) is None
    assert share.subscription.handed_back == 2
